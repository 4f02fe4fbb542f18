// Column-row sampling: which rows are selected, with which weights, against the definitions; and
// the same on each device. What the estimates are worth is in sampling_estimate_test.cc.
#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/sampling_testing.h"

namespace snug::kernels {
namespace {

constexpr SamplingKind kKinds[] = {SamplingKind::kSystematic, SamplingKind::kWinnerTakeAll};

// Scores that are whole numbers below 2^24, so that what follows is exact in integers.
SharedVector<float> WholeScores(int64_t T, int law, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  const double sigma = 0.5 * (law + 1);
  SharedVector<float> scores;
  for (int64_t t = 0; t < T; ++t) {
    double score = std::exp(sigma * normal(engine)) * 1000.0;
    if (law == 6) score = static_cast<double>(engine() % (1 << 20));        // Uniform.
    if (law == 7) score = engine() % 3 == 0 ? 0.0 : 10.0 + (engine() % 5);  // Zeros and ties.
    if (law == 8) score = std::ldexp(1.0, static_cast<int>(t % 24));        // Geometric.
    scores.push_back(static_cast<float>(std::floor(std::min(score, 16777215.0))));
  }
  return scores;
}

// The page's definition and its greedy rule, in whole numbers: (S - S_c) / (k - c) is compared by
// cross-multiplying.
struct Certain {
  int64_t argmin, greedy;
};
Certain CertainOf(const SharedVector<float>& scores, int64_t k) {
  std::vector<int64_t> s(scores.begin(), scores.end());
  std::sort(s.rbegin(), s.rend());
  int64_t rest = std::accumulate(s.begin(), s.end(), int64_t{0});
  Certain result = {0, -1};
  int64_t best = rest, best_c = 0;
  for (int64_t c = 0; c < k; ++c) {
    if (rest * (k - best_c) < best * (k - c)) {
      best = rest;
      best_c = c;
    }
    if (result.greedy < 0 && s[c] * (k - c) <= rest) result.greedy = c;
    rest -= s[c];
  }
  result.argmin = best_c;
  return result;
}

// WTA-4: argmin over all c, the greedy scan and our threshold give the same set, which holds the
// largest scores; every slot is filled, and the systematic sample has distinct rows in order.
TEST(SampleRowsTest, Wta4CertainSetIsTheDefinitions) {
  const int pools = OnCpu() ? 1000 : 9;
  for (int n = 0; n < pools; ++n) {
    const int law = n % 9;
    const int64_t T = 50 + n % 7 * 61, k = 10 + n % 5 * 9;
    SCOPED_TRACE(testing::Message() << "pool " << n << ", law " << law);
    Pool pool = {.norms = WholeScores(T, law, static_cast<uint32_t>(n)),
                 .surrogate = {},
                 .mask = {},
                 .kind = kKinds[(n + n / 9) % 2]};
    const Certain expected = CertainOf(pool.norms, k);
    ASSERT_EQ(expected.argmin, expected.greedy);
    const Selected out = Sample(pool, k, static_cast<uint32_t>(n), TestStream());
    ASSERT_EQ(out.certain[0], expected.argmin);
    std::vector<float> sorted(pool.norms.begin(), pool.norms.end());
    std::sort(sorted.rbegin(), sorted.rend());
    const float least = expected.argmin == 0 ? INFINITY : sorted[expected.argmin - 1];
    const double rest = std::accumulate(sorted.begin() + expected.argmin, sorted.end(), 0.0);
    int64_t taken = 0;
    for (int64_t i = 0; i < k; ++i) {
      const float weight = out.weights[i];
      const bool certain = pool.norms[out.index[i]] >= least && weight != 0.0f;
      taken += certain ? 1 : 0;
      ASSERT_TRUE(certain ? weight == 1.0f : rest == 0.0 ? weight == 0.0f : weight >= 1.0f);
      if (pool.kind == SamplingKind::kSystematic && i > 0 && weight > 0.0f) {
        ASSERT_LT(out.index[i - 1], out.index[i]);
      }
    }
    EXPECT_EQ(taken, expected.argmin);
  }
}

// The weight of a row that is not certain is tau / s_t, tau = S_R / (k - |C|).
TEST(SampleRowsTest, WeightsAreTauOverScore) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {.norms = LogNormal(2048, 1.0, 3),
                 .surrogate = LogNormal(2048, 0.5, 4),
                 .mask = {},
                 .kind = kind};
    const Selected out = Sample(pool, 614, 0, TestStream());
    std::vector<double> scores;
    for (int64_t t = 0; t < 2048; ++t) {
      scores.push_back(static_cast<double>(pool.norms[t]) * static_cast<double>(pool.surrogate[t]));
    }
    std::vector<double> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    const int64_t certain = out.certain[0];
    ASSERT_GT(certain, 10);
    const double rest = std::accumulate(sorted.begin() + certain, sorted.end(), 0.0);
    for (int64_t i = 0; i < 614; ++i) {
      const double score = scores[out.index[i]];
      const double weight =
          score >= sorted[certain - 1] ? 1.0 : rest / static_cast<double>(614 - certain) / score;
      ASSERT_NEAR(out.weights[i], weight, 1e-6 * weight);
    }
  }
}

// One row has more than 0.999 of the mass. The rest is sampled with its full weights all the same;
// the published code multiplies it by 0 then.
TEST(SampleRowsTest, NoShareOfTheMassIsLeftOut) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {
        .norms = SharedVector<float>(100, 1.0f), .surrogate = {}, .mask = {}, .kind = kind};
    pool.norms[31] = 1e6f;
    const Selected out = Sample(pool, 10, 0, TestStream());
    EXPECT_EQ(out.certain[0], 1);
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_NEAR(out.weights[i], out.index[i] == 31 ? 1.0 : 99.0 / 9.0, 1e-2);
    }
  }
}

// The same rows and weights, to the bit, whatever the pool is like and wherever a tile ends.
TEST(SampleRowsTest, SelectsTheSameOnEachDevice) {
  for (int64_t T : {1, 2, 31, 33, 127, 1025, 4097}) {
    for (SamplingKind kind : kKinds) {
      for (double sigma : {0.0, 3.0}) {
        SCOPED_TRACE(testing::Message() << T << " rows, sigma " << sigma);
        Pool pool = {.norms = LogNormal(T, sigma, 5),
                     .surrogate = LogNormal(T, sigma, 6),
                     .mask = SharedVector<uint8_t>(T, 1),
                     .floor = 0.01f,
                     .kind = kind};
        for (int64_t t = 0; t < T; t += 5) pool.mask[t] = t % 2 == 0 ? 0 : 1;
        const int64_t k = std::max<int64_t>(1, T / 3);
        const Selected cpu = Sample(pool, k, 9, nullptr), here = Sample(pool, k, 9, TestStream());
        EXPECT_TRUE(cpu == here);
        EXPECT_NE(cpu.index[0], -2);
      }
    }
  }
}

// WTA-1: with k = T every row, in order, with weight 1: what is gathered is the input to the bit.
TEST(SampleRowsTest, Wta1AllRowsAreTheExactPath) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {.norms = LogNormal(333, 2.0, 7), .surrogate = {}, .mask = {}, .kind = kind};
    const Selected out = Sample(pool, SampleBudget(333, 1.0), 0, TestStream());
    for (int32_t t = 0; t < 333; ++t) {
      ASSERT_EQ(out.index[t], t);
      ASSERT_EQ(BitsOf(out.weights[t]), BitsOf(1.0f));
    }
    EXPECT_EQ(out.certain[0], 333);
  }
  EXPECT_EQ(SampleBudget(333, 0.3), 99);
  EXPECT_EQ(SampleBudget(20, 0.1), 10);
  EXPECT_EQ(SampleBudget(7, 0.1), 7);
}

// WTA-2: one row has all the mass: it is C, and nothing is random.
TEST(SampleRowsTest, Wta2OneRowWithAllTheMass) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {
        .norms = SharedVector<float>(200, 0.0f), .surrogate = {}, .mask = {}, .kind = kind};
    pool.norms[77] = 3.0f;
    const Selected out = Sample(pool, 10, 0, TestStream());
    EXPECT_EQ(out.certain[0], 1);
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(out.index[i], 77);
      EXPECT_EQ(out.weights[i], i == 0 ? 1.0f : 0.0f);
    }
    EXPECT_TRUE(Sample(pool, 10, 1, TestStream()) == out);
    pool.norms[77] = 0.0f;  // No mass at all.
    const Selected nothing = Sample(pool, 10, 0, TestStream());
    EXPECT_EQ(nothing.certain[0], 0);
    for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(nothing.weights[i], 0.0f);
  }
}

// WTA-3: equal scores: C is empty, all weights are T / k and add up to T.
TEST(SampleRowsTest, Wta3EqualScores) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {
        .norms = SharedVector<float>(2048, 0.7f), .surrogate = {}, .mask = {}, .kind = kind};
    const Selected out = Sample(pool, 512, 3, TestStream());
    EXPECT_EQ(out.certain[0], 0);
    double sum = 0.0;
    for (float weight : out.weights) sum += static_cast<double>(weight);
    EXPECT_EQ(sum, 2048.0);
  }
}

// WTA-9: a surrogate that knows nothing is no surrogate: full scaling, the same rows.
TEST(SampleRowsTest, Wta9ColdStartIsSamplingByTheNorms) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {.norms = LogNormal(500, 1.0, 8), .surrogate = {}, .mask = {}, .kind = kind};
    const Selected without = Sample(pool, 100, 3, TestStream());
    pool.surrogate.assign(500, 0.0f);
    EXPECT_TRUE(Sample(pool, 100, 3, TestStream()) == without);
  }
}

// WTA-11: padding is never selected, even where the floor lifts every other row.
TEST(SampleRowsTest, Wta11PaddingIsNeverSelected) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {.norms = LogNormal(500, 1.0, 9),
                 .surrogate = SharedVector<float>(500, 0.0f),
                 .mask = SharedVector<uint8_t>(500, 0),
                 .floor = 0.1f,
                 .kind = kind};
    for (int64_t t = 100; t < 300; ++t) pool.mask[t] = 1;
    for (int64_t t = 100; t < 110; ++t) pool.surrogate[t] = 2.0f;
    for (int64_t k : {20, 150, 250}) {  // The last: more than there are.
      const Selected out = Sample(pool, k, 4, TestStream());
      for (int32_t t : out.index) ASSERT_TRUE(t >= 100 && t < 300) << t;
    }
  }
}

// Half of the rows have score 0, and so floor * mean: an eighth of the others', whose weights are
// an eighth of theirs. The mean is that of all rows.
TEST(SampleRowsTest, RowsWithoutAScoreGetTheFloorTimesTheMean) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {.norms = SharedVector<float>(100, 1.0f),
                 .surrogate = SharedVector<float>(100, 1.0f),
                 .mask = {},
                 .floor = 0.25f,
                 .kind = kind};
    for (int64_t t = 0; t < 100; t += 2) pool.surrogate[t] = 0.0f;
    int64_t lifted = 0;
    for (uint32_t step = 0; step < 10; ++step) {
      const Selected out = Sample(pool, 20, step, TestStream());
      ASSERT_EQ(out.certain[0], 0);
      for (int64_t i = 0; i < 20; ++i) {
        const double score = out.index[i] % 2 == 0 ? 0.125 : 1.0;
        lifted += out.index[i] % 2 == 0 ? 1 : 0;
        ASSERT_NEAR(out.weights[i] * score, (50.0 + 50.0 * 0.125) / 20.0, 1e-6);
      }
    }
    EXPECT_GT(lifted, 0);
  }
}

// WTA-13: a draw is its site's: the same again, another in another micro-batch or step.
TEST(SampleRowsTest, Wta13DrawsBelongToTheirSite) {
  for (SamplingKind kind : kKinds) {
    Pool pool = {.norms = LogNormal(500, 0.3, 10), .surrogate = {}, .mask = {}, .kind = kind};
    const Selected first = Sample(pool, 100, 0, TestStream());
    EXPECT_TRUE(Sample(pool, 100, 0, TestStream()) == first);
    EXPECT_FALSE(Sample(pool, 100, 1, TestStream()) == first);
    Selected other(500, 100, kind);
    SampleRowsParams p = ParamsOf(pool, other, 0);
    p.site.micro_batch = 1;
    ASSERT_TRUE(SampleRows(p, TestStream()).ok());
    WaitForKernels();
    EXPECT_FALSE(other == first);
  }
}

// A row whose score is not finite is kept, so that it shows, and the others are still sampled.
TEST(SampleRowsTest, WhatIsNotFiniteIsKept) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), INFINITY}) {
    Pool pool = {.norms = LogNormal(100, 1.0, 11), .surrogate = {}, .mask = {}};
    pool.norms[42] = bad;
    const Selected out = Sample(pool, 20, 0, TestStream());
    EXPECT_EQ(std::count(out.index.begin(), out.index.end(), 42), 1);
    EXPECT_NE(out.index[19], -2);
  }
}

TEST(SampleRowsTest, RefusesBadArguments) {
  Pool pool = {.norms = LogNormal(50, 1.0, 12), .surrogate = {}, .mask = {}};
  Selected out(50, 20, pool.kind);
  const auto refused = [&](auto change) {
    SampleRowsParams p = ParamsOf(pool, out, 0);
    change(p);
    return Name(SampleRows(p, TestStream()));
  };
  using P = SampleRowsParams;
  EXPECT_EQ(refused([](P& p) { p.k = 51; }), "bad shape: k");
  EXPECT_EQ(refused([](P& p) { p.k = 0; }), "bad shape: k");
  EXPECT_EQ(refused([](P& p) { p.T = kMaxSampledRows + 1; }), "bad shape: T");
  EXPECT_EQ(refused([](P& p) { p.norms = nullptr; }), "null pointer: norms");
  EXPECT_EQ(refused([](P& p) { p.index = nullptr; }), "null pointer: index");
  EXPECT_EQ(refused([](P& p) { p.weights = nullptr; }), "null pointer: weights");
  EXPECT_EQ(refused([](P& p) { p.workspace = nullptr; }), "null pointer: workspace");
  EXPECT_EQ(refused([](P& p) { p.workspace = static_cast<char*>(p.workspace) + 4; }),
            "bad value: workspace");
  EXPECT_EQ(refused([](P& p) { p.floor = 1.0f; }), "bad value: floor");
  EXPECT_EQ(refused([](P& p) { p.kind = static_cast<SamplingKind>(2); }), "bad value: kind");
  EXPECT_EQ(refused([](P& p) { p.site.op = kMaxRandomOps; }), "bad value: site.op");
  EXPECT_EQ(out.index[0], -1);
}

// ---- gathering ----------------------------------------------------------------------------------

struct Gather {
  SharedVector<int32_t> index;
  SharedVector<float> weights;
  GatherScaledRowsParams Params(Matrix& x, Matrix& y) {
    return {.x = x.data(),
            .index = index.data(),
            .weights = weights.data(),
            .y = y.data(),
            .N = y.N(),
            .C = y.C(),
            .x_rows = x.N(),
            .x_stride = x.stride(),
            .y_stride = y.stride(),
            .dtype = x.dtype()};
  }
};

// Rounded once; of weight 1 the same bits; of weight 0 zeros, whatever lies there.
TEST(GatherScaledRowsTest, MatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Matrix x(9, C, dtype), y(5, C, dtype);
      x.Fill(20);
      x.Set(3, 0, std::numeric_limits<double>::quiet_NaN());
      Gather gather = {{0, 2, 2, 8, 3}, {1.0f, 2.625f, 0.1f, -1.7f, 0.0f}};
      ASSERT_TRUE(GatherScaledRows(gather.Params(x, y), TestStream()).ok());
      ExpectClose(y, Map(y, [&](int64_t i, int64_t c) {
                    return i == 4 ? 0.0 : gather.weights[i] * x.At(gather.index[i], c);
                  }));
      for (int64_t c = 0; c < C; ++c) ASSERT_EQ(y.At(0, c), x.At(0, c));
    }
  }
}

TEST(GatherScaledRowsTest, RefusesBadArguments) {
  Matrix x(9, 33), y(2, 33);
  x.Fill(21);
  const Bytes before = y.bytes();
  Gather gather = {{0, 8}, {1.0f, 1.0f}};
  const auto refused = [&](auto change) {
    GatherScaledRowsParams p = gather.Params(x, y);
    change(p);
    return Name(GatherScaledRows(p, TestStream()));
  };
  using P = GatherScaledRowsParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.weights = nullptr; }), "null pointer: weights");
  EXPECT_EQ(refused([](P& p) { p.x_stride = 32; }), "bad stride: x_stride");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(7); }), "bad dtype: dtype");
  if (OnCpu()) {
    EXPECT_EQ(refused([](P& p) { p.x_rows = 8; }), "bad index: index");
  }
  EXPECT_EQ(y.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
