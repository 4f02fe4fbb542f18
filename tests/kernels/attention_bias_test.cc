// Attention with a bias by head and distance, against the reference in double and, for the tables
// that models have, against what their papers write.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// Few entries, all but the farthest distance, all, and more than there are.
TEST(AttentionBiasTest, MatchesReferenceForAllTables) {
  const int64_t T = OnCpu() ? 300 : 150;
  for (int64_t entries : OnDevice<int64_t>({2, 33, 64, T - 1, T, T + 77}, {2, 64, T - 1, T + 77}))
    CheckAttention({.lengths = {T}, .heads = 2, .kv_heads = 1, .bias = entries});
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t entries : {3, 400})
      CheckAttention({.lengths = {OnCpu() ? 300 : 66},
                      .heads = 1,
                      .kv_heads = 1,
                      .bias = entries,
                      .dtype = dtype});
  }
}

// A constant moves no probability: its gradient is what rounding leaves of terms that add up to 0.
TEST(AttentionBiasTest, OneEntryMovesNothing) {
  const AttentionCase c = {.lengths = {OnCpu() ? 300 : 70}, .heads = 1, .kv_heads = 1, .bias = 1};
  AttentionCase table = c, without = c;
  table.bias = c.lengths[0];
  without.bias = 0;
  Attended one(c), each(table);
  one.Forward();
  one.Backward();
  each.Forward();
  each.Backward();
  const Expected expected{Attended(without)};
  ExpectNear(one, one.o, expected.o, "o");
  ExpectNear(one, one.dq, expected.dq, "dq");
  double magnitude = 0.0;
  for (double d : Dense(each.d_bias)) magnitude += std::fabs(d);
  EXPECT_LE(std::fabs(one.d_bias.At(0, 0)), 1e-6 * magnitude);
}

TEST(AttentionBiasTest, MatchesReferenceAtAllLengths) {
  for (int64_t T : OnDevice<int64_t>({1, 2, 31, 33, 64, 127, 257, 513}, {1, 2, 63, 64, 65, 129}))
    CheckAttention({.lengths = {T}, .heads = 1, .kv_heads = 1, .bias = 40});
}

TEST(AttentionBiasTest, MatchesReferenceForManyDocuments) {
  for (int64_t entries : OnDevice<int64_t>({5, 90, 1000}, {5, 90})) {
    CheckAttention({.lengths = {0, 1, 70, 8, 0, 127, 33, 2, 64, 0},
                    .heads = OnCpu() ? 4 : 1,
                    .kv_heads = OnCpu() ? 2 : 1,
                    .bias = entries});
  }
}

TEST(AttentionBiasTest, MatchesReferenceForAllGroups) {
  for (auto [heads, kv_heads] :
       {std::pair<int64_t, int64_t>{4, 4}, {4, 1}, {6, 2}, {12, 3}, {16, 8}}) {
    if (!OnCpu() && heads > 6) continue;
    CheckAttention({.lengths = OnDevice<int64_t>({90, 41}, {20, 7}),
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .bias = 17});
  }
}

// The window ends before the table, with it, after it.
TEST(AttentionBiasTest, MatchesReferenceWithWindows) {
  for (int64_t window : OnDevice<int64_t>({1, 2, 31, 64, 100, 256, 400}, {1, 64, 100})) {
    for (int64_t entries : {64, 101}) {
      CheckAttention({.lengths = {OnCpu() ? 400 : 135, 20},
                      .heads = 1,
                      .kv_heads = 1,
                      .window = window,
                      .bias = entries});
    }
  }
}

TEST(AttentionBiasTest, MatchesReferenceWithAllFeaturesTogether) {
  OnEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16, DType::kF16}, {DType::kF32})) {
      for (int64_t window : OnDevice<int64_t>({0, 90}, {90})) {
        CheckAttention({.lengths = {OnCpu() ? 300 : 135, 1, 40},
                        .heads = OnCpu() ? 4 : 2,
                        .kv_heads = OnCpu() ? 2 : 1,
                        .D = 16,
                        .window = window,
                        .bias = 50,
                        .softcap = 5.0,
                        .dropout = 0.3,
                        .dtype = dtype});
      }
    }
  });
}

// Distances are those to the query's position among the keys.
TEST(AttentionBiasTest, QueriesMayBeFewerThanKeys) {
  for (int64_t entries : OnDevice<int64_t>({30, 600}, {250})) {
    Attended run({.lengths = {1, 3, 40, 0, 1},
                  .heads = OnCpu() ? 4 : 2,
                  .kv_heads = OnCpu() ? 2 : 1,
                  .D = 16,
                  .window = 400,
                  .bias = entries,
                  .softcap = 20.0,
                  .dropout = 0.2,
                  .earlier = {0, 500, OnCpu() ? 300 : 90, 9, OnCpu() ? 700 : 63}});
    const Expected expected(run);
    CheckAttentionForward(run, expected);
    CheckAttentionBackward(run, expected);
  }
}

// Of a table all, none, or some of the distances to keys behind a query, and more than there are.
TEST(AttentionBiasTest, KeysBehindAQueryHaveEntriesOfTheirOwn) {
  const int64_t T = OnCpu() ? 300 : 150;
  for (auto [entries, origin] : OnDevice<std::pair<int64_t, int64_t>>(
           {{1, 0}, {2, 1}, {33, 0}, {65, 32}, {129, 64}, {40, 39}, {599, 299}, {900, 450}},
           {{2, 1}, {65, 32}, {299, 149}, {400, 200}})) {
    CheckAttention({.lengths = {T, 1, 0, 65},
                    .heads = 2,
                    .kv_heads = 1,
                    .causal = false,
                    .bias = entries,
                    .origin = origin});
  }
  for (int64_t length : OnDevice<int64_t>({1, 2, 63, 64, 65, 66, 127, 128, 129, 257}, {2, 64, 66}))
    CheckAttention({.lengths = {length, 3},
                    .heads = 1,
                    .kv_heads = 1,
                    .causal = false,
                    .bias = 41,
                    .origin = 20});
}

TEST(AttentionBiasTest, TwoSidesWithAllFeaturesTogether) {
  OnEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16, DType::kF16}, {DType::kF32})) {
      CheckAttention({.lengths = OnDevice<int64_t>({300, 1, 40}, {70, 1, 20}),
                      .heads = OnCpu() ? 4 : 2,
                      .kv_heads = OnCpu() ? 2 : 1,
                      .D = 16,
                      .causal = false,
                      .bias = 50,
                      .origin = 17,
                      .softcap = 5.0,
                      .dropout = 0.3,
                      .dtype = dtype});
    }
  });
}

// Keys that lie apart, as many as queries or more.
TEST(AttentionBiasTest, TwoSidesMayHaveKeysBeforeTheQueries) {
  CheckAttention({.lengths = {1, 3, 40, 0, 1},
                  .heads = OnCpu() ? 4 : 2,
                  .kv_heads = OnCpu() ? 2 : 1,
                  .causal = false,
                  .bias = 101,
                  .origin = 50,
                  .earlier = {0, 70, 30, 9, 63}});
}

// Entries before the origin are of no pair where a query sees nothing behind it.
TEST(AttentionBiasTest, CausalTablesMayBeginBeforeTheOrigin) {
  const AttentionCase c = {.lengths = {90, 7}, .bias = 40, .origin = 12};
  CheckAttention(c);
  Attended run(c);
  run.Forward();
  run.Backward();
  WaitForKernels();
  for (int64_t b = 0; b < 12; ++b) EXPECT_EQ(run.d_bias.At(0, b), 0.0);
}

TEST(AttentionBiasTest, GradientsOfTwoSidesAreFiniteDifferences) {
  for (auto [entries, origin] : {std::pair<int64_t, int64_t>{3, 1}, {11, 5}}) {
    Attended run({.lengths = {6, 3},
                  .heads = 2,
                  .kv_heads = 1,
                  .D = 4,
                  .causal = false,
                  .bias = entries,
                  .origin = origin,
                  .softcap = 2.0});
    run.Forward();
    run.Backward();
    ExpectClose(run.dq, DifferencesOfLoss(run, &AttentionInputs::q), 8.0);
    ExpectClose(run.dk, DifferencesOfLoss(run, &AttentionInputs::k), 8.0);
    ExpectClose(run.d_bias, DifferencesOfLoss(run, &AttentionInputs::bias), 8.0);
  }
}

TEST(AttentionBiasTest, GradientsAreFiniteDifferences) {
  for (int64_t entries : {3, 9}) {
    Attended run({.lengths = {6, 3},
                  .heads = 2,
                  .kv_heads = 1,
                  .D = 4,
                  .window = 5,
                  .bias = entries,
                  .softcap = 2.0});
    run.Forward();
    run.Backward();
    ExpectClose(run.dq, DifferencesOfLoss(run, &AttentionInputs::q), 8.0);
    ExpectClose(run.dk, DifferencesOfLoss(run, &AttentionInputs::k), 8.0);
    ExpectClose(run.dv, DifferencesOfLoss(run, &AttentionInputs::v), 8.0);
    ExpectClose(run.d_bias, DifferencesOfLoss(run, &AttentionInputs::bias), 8.0);
  }
}

// ---- tables of models ---------------------------------------------------------------------------

// o of one document without window, softcap and dropout, s[i,j] being bias(h, i, j) more than its
// product.
Reference OutputWith(const Attended& run,
                     const std::function<double(int64_t h, int64_t i, int64_t j)>& bias) {
  const int64_t D = run.c.D;
  return Map(run.o, [&](int64_t i, int64_t column) {
    const int64_t h = column / D;
    double sum = 0.0, out = 0.0;
    for (int64_t j = 0; j <= i; ++j) {
      double s = 0.0;
      for (int64_t c = 0; c < D; ++c) s += run.q.At(i, h * D + c) * run.k.At(j, h * D + c);
      const double e = std::exp(run.scale * s + bias(h, i, j));
      sum += e;
      out += e * run.v.At(j, column);
    }
    return out / sum;
  });
}

// Press et al. 2022, sec. 3: m (-(i - 1), ..., -1, 0), the slopes m being 2^(-8 h / H), h = 1 .. H;
// Bloom writes it as m j, which softmax does not tell from it.
TEST(AttentionBiasTest, AlibiIsALinearTable) {
  Attended run({.lengths = {130}, .heads = 4, .kv_heads = 4, .bias = 130});
  const auto slope = [](int64_t h) { return std::exp2(-8.0 * static_cast<double>(h + 1) / 4.0); };
  for (int64_t h = 0; h < 4; ++h) {
    for (int64_t b = 0; b < 130; ++b) run.bias.Set(h, b, -slope(h) * static_cast<double>(b));
  }
  run.Forward();
  ExpectNear(run, run.o,
             OutputWith(run, [&](int64_t h, int64_t, int64_t j) { return slope(h) * j; }), "o");
}

// Raffel et al. 2020, sec. 2.1: of 32 buckets half for a distance each, the others in logarithmic
// steps up to 128, the last of them beyond.
int64_t BucketOf(int64_t distance) {
  if (distance < 16) return distance;
  const double step =
      16.0 * std::log(static_cast<double>(distance) / 16.0) / std::log(128.0 / 16.0);
  return std::min<int64_t>(31, 16 + static_cast<int64_t>(step));
}

// And the gradient of a bucket is the sum of its distances'.
TEST(AttentionBiasTest, BucketsAreATableOfTheirValues) {
  Attended run({.lengths = {150}, .heads = 1, .kv_heads = 1, .D = 4, .bias = 128});
  Matrix buckets(1, 32);
  buckets.Fill(7);
  for (int64_t b = 0; b < 128; ++b) run.bias.Set(0, b, buckets.At(0, BucketOf(b)));
  run.Forward();
  run.Backward();
  const auto output = [&](const std::vector<double>& values) {
    return OutputWith(run, [&](int64_t, int64_t i, int64_t j) {
      return values[static_cast<size_t>(BucketOf(i - j))];
    });
  };
  ExpectNear(run, run.o, output(Dense(buckets)), "o");
  const std::vector<double> dO = Dense(run.dO);
  const Reference expected = FiniteDifferences(Dense(buckets), [&](const std::vector<double>& x) {
    const Reference o = output(x);
    double loss = 0.0;
    for (size_t n = 0; n < o.size(); ++n) loss += o[n] * dO[n];
    return loss;
  });
  Matrix d_buckets(1, 32);
  d_buckets.Fill(0, 0.0);
  for (int64_t b = 0; b < 128; ++b) {
    const int64_t bucket = BucketOf(b);
    d_buckets.Set(0, bucket, d_buckets.At(0, bucket) + run.d_bias.At(0, b));
  }
  ExpectNear(run, d_buckets, expected, "d_buckets");
}

// ---- what else is promised ----------------------------------------------------------------------

TEST(AttentionBiasTest, GradientIsAdded) {
  const AttentionCase c = {.lengths = {70, 20}, .bias = 30};
  Attended once(c), before(c);
  before.d_bias.Fill(8);
  const Matrix start = before.d_bias;
  for (Attended* run : {&once, &before}) {
    run->Forward();
    run->Backward();
  }
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t b = 0; b < c.bias; ++b) {
      const double sum = start.At(h, b) + once.d_bias.At(h, b);
      EXPECT_NEAR(before.d_bias.At(h, b), sum, 4e-7 * (std::fabs(sum) + std::fabs(start.At(h, b))));
    }
  }
}

// A row per entry in the place of one per head: the same bits.
TEST(AttentionBiasTest, EntriesMayBeRows) {
  const AttentionCase c = {.lengths = {70, 20}, .causal = false, .bias = 31, .origin = 15};
  Attended by_head(c), by_entry(c);
  by_head.Forward();
  by_head.Backward();
  Matrix table(c.bias, c.heads), d_table(c.bias, c.heads);
  d_table.Fill(0, 0.0);
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t b = 0; b < c.bias; ++b) table.Set(b, h, by_entry.bias.At(h, b));
  }
  const AttentionBias bias = {table.floats(), c.bias, 1, table.stride(), c.origin};
  AttentionForwardParams forward = by_entry.ForwardParams();
  forward.shape.bias = bias;
  ASSERT_EQ(Name(AttentionForward(forward, TestStream())), "ok: ");
  AttentionBackwardParams backward = by_entry.BackwardParams();
  backward.shape.bias = bias;
  backward.d_bias = d_table.floats();
  backward.d_bias_stride = 1;
  ASSERT_EQ(Name(AttentionBackward(backward, TestStream())), "ok: ");
  WaitForKernels();
  EXPECT_EQ(by_entry.o.bytes(), by_head.o.bytes());
  EXPECT_EQ(by_entry.dq.bytes(), by_head.dq.bytes());
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t b = 0; b < c.bias; ++b) EXPECT_EQ(d_table.At(b, h), by_head.d_bias.At(h, b));
  }
}

TEST(AttentionBiasTest, GradientMayBeLeftOut) {
  const AttentionCase c = {.lengths = {OnCpu() ? 300 : 70, 20}, .kv_heads = 1, .bias = 30};
  Attended all(c), without(c);
  all.Forward();
  all.Backward();
  without.Forward();
  AttentionBackwardParams p = without.BackwardParams();
  const int64_t threads = OnCpu() ? omp_get_max_threads() : 1;
  const AttentionSizes sizes = SizesOf(without.Shape(), threads);
  p.d_bias = nullptr;
  p.workspace_bytes = OnCpu() ? AttentionBackwardBytes(sizes) : AttentionBackwardStreamBytes(sizes);
  EXPECT_LT(p.workspace_bytes, without.BackwardBytes());
  ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
  EXPECT_EQ(without.dq.bytes(), all.dq.bytes());
  EXPECT_EQ(without.dk.bytes(), all.dk.bytes());
  EXPECT_EQ(without.dv.bytes(), all.dv.bytes());
  EXPECT_EQ(Dense(without.d_bias), std::vector<double>(60, 0.0));
}

// It alone, with all gradients over their inputs otherwise.
TEST(AttentionBiasTest, OtherGradientsMayBeLeftOutOrLieOverInputs) {
  const AttentionCase c = {.lengths = {70, 20}, .kv_heads = 1, .bias = 30};
  Attended all(c), alone(c), inside(c);
  all.Forward();
  all.Backward();
  alone.Forward();
  AttentionBackwardParams p = alone.BackwardParams();
  p.dq = p.dk = p.dv = nullptr;
  ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
  EXPECT_EQ(alone.d_bias.bytes(), all.d_bias.bytes());
  inside.Forward();
  p = inside.BackwardParams();
  p.dq = inside.q.data();
  p.dk = inside.k.data();
  p.dv = inside.v.data();
  ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
  EXPECT_EQ(inside.q.bytes(), all.dq.bytes());
  EXPECT_EQ(inside.k.bytes(), all.dk.bytes());
  EXPECT_EQ(inside.v.bytes(), all.dv.bytes());
  EXPECT_EQ(inside.d_bias.bytes(), all.d_bias.bytes());
}

TEST(AttentionBiasTest, ZerosAreNoBias) {
  const AttentionCase c = {.lengths = {100}, .softcap = 5.0};
  AttentionCase with = c;
  with.bias = 50;
  Attended none(c), zeros(with);
  zeros.bias.Fill(0, 0.0);
  for (Attended* run : {&none, &zeros}) {
    run->Forward();
    run->Backward();
  }
  EXPECT_EQ(zeros.o.bytes(), none.o.bytes());
  EXPECT_EQ(zeros.lse.bytes(), none.lse.bytes());
  EXPECT_EQ(zeros.dq.bytes(), none.dq.bytes());
  EXPECT_EQ(zeros.dk.bytes(), none.dk.bytes());
}

TEST(AttentionBiasTest, SameBitsForAllThreadCountsAndRuns) {
  const int before = omp_get_max_threads();
  for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
    const AttentionCase c = {.lengths = {OnCpu() ? 290 : 70, 3, 100},
                             .heads = OnCpu() ? 6 : 2,
                             .kv_heads = 2,
                             .D = 24,
                             .bias = 80,
                             .dropout = 0.2,
                             .dtype = dtype};
    Bytes first;
    for (int threads : OnDevice<int>({1, 2, 3, 5}, {before, before})) {
      omp_set_num_threads(threads);
      Attended run(c);
      run.Forward();
      run.Backward();
      if (first.empty()) first = AllBytes(run);
      EXPECT_EQ(AllBytes(run), first) << threads << " threads";
    }
  }
  omp_set_num_threads(before);
}

// Entries of distances that no query sees may be anything, and get nothing.
TEST(AttentionBiasTest, NothingComesFromWhatIsNotVisible) {
  const AttentionCase c = {.lengths = {50, 90}, .window = 10, .bias = 60};
  Attended clean(c), dirty(c);
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t b = 10; b < 60; ++b) dirty.bias.Set(h, b, NAN);
  }
  for (Attended* run : {&clean, &dirty}) {
    run->Forward();
    run->Backward();
  }
  EXPECT_EQ(AllBytes(dirty), AllBytes(clean));
  for (int64_t b = 10; b < 60; ++b) EXPECT_EQ(clean.d_bias.At(0, b), 0.0);
}

// ---- what the tests above find out --------------------------------------------------------------

// A backward that knows nothing of the bias, that has another head's, whose table ends early, or
// that takes the capped slope for the bias as well.
TEST(AttentionBiasTest, ControlBackwardWithAnotherBiasIsFound) {
  Attended run({.lengths = {60}, .bias = 20});
  const Expected expected(run);
  run.Forward();
  const AttentionBias bias = run.Shape().bias;
  Matrix swapped(2, 20);
  for (int64_t b = 0; b < 20; ++b) {
    swapped.Set(0, b, run.bias.At(1, b));
    swapped.Set(1, b, run.bias.At(0, b));
  }
  const auto error = [&](const AttentionBias& used) {
    AttentionBackwardParams p = run.BackwardParams();
    p.shape.bias = used;
    p.d_bias = nullptr;
    EXPECT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
    WaitForKernels();
    return ErrorOf(run.dq, expected.dq);
  };
  EXPECT_LE(error(bias), 1.5e-6);
  EXPECT_GE(error({}), 1e-2);
  AttentionBias other = bias;
  other.table = swapped.floats();
  other.stride = swapped.stride();
  EXPECT_GE(error(other), 1e-2);
  other = bias;
  other.entries = 19;
  EXPECT_GE(error(other), 1e-2);
}

TEST(AttentionBiasTest, ControlGradientOfTheCappedScoreIsFound) {
  Attended run({.lengths = {60}, .bias = 20, .softcap = 1.0});
  const Expected expected(run);
  Attended none({.lengths = {60}, .bias = 20});
  const Expected uncapped(none);
  run.Forward();
  run.Backward();
  WaitForKernels();
  EXPECT_LE(ErrorOf(run.d_bias, expected.d_bias), 1.5e-6);
  EXPECT_GE(ErrorOf(run.d_bias, uncapped.d_bias), 1e-2);
}

}  // namespace
}  // namespace snug::kernels
