// Attention against a reference in double that knows nothing of blocks, against finite differences,
// and against itself with other threads and in place; and that its cost is what is visible.
#include "kernels/attention.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/loops/loops.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// Relative L2 errors. bf16 and fp16: of results rounded once, and of gradients that read a rounded
// o. What is all but 0, as with one visible key, is compared with 1. Scores of hundreds have
// absolute errors of 1e-5 in fp32, and so have their exponentials.
double LimitOf(const Attended& run, DType dtype) {
  if (dtype == DType::kBF16) return 1e-2;
  if (dtype == DType::kF16) return 1.25e-3;
  return run.c.spread > 2.0 ? 1e-5 : 1.5e-6;
}

void ExpectNear(const Attended& run, const Matrix& got, const Reference& want, const char* what) {
  const double limit = LimitOf(run, got.dtype());
  double norm = 0.0;
  for (double element : want) norm += element * element;
  const double error = RelativeError(got, want) * std::min(1.0, std::sqrt(norm));
  EXPECT_LE(error, limit) << run.c.Text() << ": " << what;  // NaN is not <=.
  EXPECT_TRUE(got.GapsUntouched()) << run.c.Text() << ": " << what;
}

void CheckForward(Attended& run, const Expected& expected) {
  run.Forward();
  ExpectNear(run, run.o, expected.o, "o");
  ExpectNear(run, run.lse, expected.lse, "lse");
}

void Check(const AttentionCase& c) {
  Attended run(c);
  const Expected expected(run);
  CheckForward(run, expected);
  run.Backward();
  ExpectNear(run, run.dq, expected.dq, "dq");
  ExpectNear(run, run.dk, expected.dk, "dk");
  ExpectNear(run, run.dv, expected.dv, "dv");
}

// What is tested on the CPU, or on CUDA, whose emulation is slow.
template <typename T>
std::vector<T> OnDevice(std::vector<T> cpu, std::vector<T> cuda) {
  return OnCpu() ? cpu : cuda;
}

// Calls body with each instruction set of this machine; on CUDA once.
template <typename Body>
void WithEachInstructionSet(const Body& body) {
  if (!OnCpu()) return body();
  const Loops& best = BestLoops();
  for (InstructionSet isa : {InstructionSet::kBaseline, InstructionSet::kAvx2,
                             InstructionSet::kAvx512, InstructionSet::kAvx512Bf16}) {
    const Loops* loops = LoopsOf(isa);
    if (loops == nullptr) continue;
    UseLoops(*loops);
    body();
  }
  UseLoops(best);
}

// Below, at and above tiles, panels and blocks; in all types.
TEST(AttentionTest, MatchesReferenceAtAllLengths) {
  for (int64_t T : OnDevice<int64_t>({1, 2, 31, 33, 64, 127, 257, 513}, {1, 31, 64, 65, 150}))
    Check({.lengths = {T}});
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : OnDevice<int64_t>({1, 2, 31, 33, 64, 127, 257, 513}, {2, 127}))
      Check({.lengths = {T}, .heads = 1, .kv_heads = 1, .dtype = dtype});
  }
  if (OnCpu()) Check({.lengths = {1100}, .heads = 1, .kv_heads = 1, .D = 16});
}

// Of one head, D not dividing by 8 leaves rows unaligned.
TEST(AttentionTest, MatchesReferenceAtAllHeadWidths) {
  if (!OnCpu()) {
    for (int64_t D : {1, 30, 80, 132}) Check({.lengths = {70}, .heads = 1, .kv_heads = 1, .D = D});
    for (int64_t D : {7, 64, 96, 256}) {
      Check({.lengths = {33}, .heads = 1, .kv_heads = 1, .D = D, .dtype = DType::kBF16});
      Check({.lengths = {20}, .heads = 1, .kv_heads = 1, .D = D, .dtype = DType::kF16});
    }
    return;
  }
  WithEachInstructionSet([] {
    for (DType dtype : kTypes) {
      for (int64_t D : {1, 8, 16, 20, 64, 80, 96, 128, 256})
        Check({.lengths = {70}, .D = D, .dtype = dtype});
    }
  });
}

// Groups that are one slice, several, and one per head.
TEST(AttentionTest, MatchesReferenceForAllGroups) {
  const std::vector<int64_t> lengths = OnDevice<int64_t>({90, 41}, {20, 7});
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (auto [heads, kv_heads] : {std::pair<int64_t, int64_t>{4, 4},
                                   {4, 2},
                                   {4, 1},
                                   {1, 1},
                                   {6, 2},
                                   {12, 3},
                                   {16, 8},
                                   {9, 3}}) {
      if (!OnCpu() && (dtype == DType::kBF16 || heads == 16)) continue;
      Check({.lengths = lengths, .heads = heads, .kv_heads = kv_heads, .dtype = dtype});
    }
  }
}

// A query sees itself alone, a few, all but one, all, and more than there are.
TEST(AttentionTest, MatchesReferenceForAllWindows) {
  for (int64_t window : OnDevice<int64_t>(
           {1, 2, 7, 31, 32, 33, 64, 100, 255, 256, 257, 512, 513, 5000}, {1, 7, 64, 65, 149})) {
    const int64_t T = OnCpu() ? 513 : 150;
    Check({.lengths = {T, 20}, .heads = 1, .kv_heads = 1, .D = 16, .window = window});
  }
  Check({.lengths = {OnCpu() ? 300 : 100},
         .heads = 4,
         .kv_heads = 2,
         .window = 48,
         .dtype = DType::kBF16});
}

TEST(AttentionTest, MatchesReferenceWithSoftcap) {
  WithEachInstructionSet([] {
    const int64_t T = OnCpu() ? 130 : 70;
    for (double spread : OnDevice<double>({0.1, 1.0, 4.0}, {0.1, 4.0})) {
      Check({.lengths = {T, 5}, .D = 16, .softcap = 5.0, .spread = spread});
      Check({.lengths = {T}, .D = 16, .window = 40, .softcap = 50.0, .spread = spread});
    }
    Check({.lengths = {T}, .D = 16, .softcap = 5.0, .dtype = DType::kBF16});
  });
}

// With the same words as the reference draws, forward and backward, whatever the blocks.
TEST(AttentionTest, MatchesReferenceWithDropout) {
  WithEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
      for (double rate : {0.1, 0.9}) {
        Check({.lengths = {OnCpu() ? 300 : 135, 1, 70},
               .heads = OnCpu() ? 4 : 2,
               .kv_heads = OnCpu() ? 2 : 1,
               .D = 16,
               .dropout = rate,
               .dtype = dtype});
      }
    }
    Check({.lengths = {OnCpu() ? 600 : 140},
           .heads = OnCpu() ? 2 : 1,
           .kv_heads = OnCpu() ? 2 : 1,
           .D = 8,
           .window = 90,
           .softcap = 5.0,
           .dropout = 0.3});
  });
}

// Over many seeds the mean is what attention without dropout gives, and the variance that of its
// terms: rate / (1 - rate) sum_j (p v[j])^2.
TEST(AttentionTest, DropoutHasItsMeanAndVariance) {
  if (!OnCpu()) GTEST_SKIP() << "its words are the CPU's, which the tests above compare";
  constexpr int kSeeds = 2000;
  constexpr double kRate = 0.25;
  Attended plain({.lengths = {20}, .heads = 1, .kv_heads = 1, .D = 4});
  plain.Forward();
  Attended run({.lengths = {20}, .heads = 1, .kv_heads = 1, .D = 4, .dropout = kRate});
  double mean = 0.0, square = 0.0, expected_variance = 0.0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    AttentionForwardParams p = run.ForwardParams();
    p.shape.site.seed = static_cast<uint64_t>(seed);
    ASSERT_TRUE(AttentionForward(p, nullptr).ok());
    mean += run.o.At(19, 0) / kSeeds;
    square += run.o.At(19, 0) * run.o.At(19, 0) / kSeeds;
  }
  for (int64_t j = 0; j < 20; ++j) {
    double s = 0.0;
    for (int64_t c = 0; c < 4; ++c) s += plain.scale * plain.q.At(19, c) * plain.k.At(j, c);
    const double term = std::exp(s - plain.lse.At(19, 0)) * plain.v.At(j, 0);
    expected_variance += kRate / (1.0 - kRate) * term * term;
  }
  EXPECT_NEAR(mean, plain.o.At(19, 0), 4.0 * std::sqrt(expected_variance / kSeeds));
  EXPECT_NEAR((square - mean * mean) / expected_variance, 1.0, 0.15);
}

// Packed documents of mixed lengths, an empty one among them.
TEST(AttentionTest, MatchesReferenceForManyDocuments) {
  if (!OnCpu()) return Check({.lengths = {0, 1, 70, 8, 0, 0, 127, 33, 2, 64, 0}});
  for (DType dtype : {DType::kF32, DType::kBF16})
    Check({.lengths = {1, 70, 8, 0, 300, 33, 2, 64}, .heads = 4, .kv_heads = 2, .dtype = dtype});
}

// Scores far beyond what exp can take; nearly all of the weight on one key.
TEST(AttentionTest, MatchesReferenceForLargeScores) {
  Check({.lengths = {80}, .D = 16, .spread = 8.0});
}

// What generation with a cache does: one query or a few behind many keys, and the whole prompt at
// once.
TEST(AttentionTest, QueriesMayBeFewerThanKeys) {
  for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
    for (int64_t window : {0, 1, 100}) {
      Attended run({.lengths = {1, 3, 40, 0, 1},
                    .heads = OnCpu() ? 4 : 2,
                    .kv_heads = OnCpu() ? 2 : 1,
                    .D = 16,
                    .window = window,
                    .dropout = window == 100 ? 0.2 : 0.0,
                    .dtype = dtype,
                    .earlier = {0, 500, 300, 9, OnCpu() ? 700 : 63}});
      CheckForward(run, Expected(run));
    }
  }
}

// Every output of a tiny case against differences of the reference, inputs being fp32.
TEST(AttentionTest, GradientsAreFiniteDifferences) {
  Attended run({.lengths = {5, 3}, .heads = 2, .kv_heads = 1, .D = 4, .window = 3, .softcap = 2.0});
  run.Forward();
  run.Backward();
  const std::vector<double> q = Dense(run.q), k = Dense(run.k), v = Dense(run.v);
  const auto loss = [&](const std::vector<double>& q, const std::vector<double>& k,
                        const std::vector<double>& v) {
    const Expected expected(run, q, k, v, false);
    double sum = 0.0;
    for (int64_t n = 0; n < static_cast<int64_t>(expected.o.size()); ++n)
      sum += expected.o[static_cast<size_t>(n)] * run.dO.At(n / run.q.C(), n % run.q.C());
    return sum;
  };
  using V = std::vector<double>;
  ExpectClose(run.dq, FiniteDifferences(q, [&](const V& x) { return loss(x, k, v); }), 8.0);
  ExpectClose(run.dk, FiniteDifferences(k, [&](const V& x) { return loss(q, x, v); }), 8.0);
  ExpectClose(run.dv, FiniteDifferences(v, [&](const V& x) { return loss(q, k, x); }), 8.0);
}

Bytes AllBytes(const Attended& run) {
  Bytes bytes;
  for (const Matrix* m : {&run.o, &run.lse, &run.dq, &run.dk, &run.dv})
    bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
  return bytes;
}

// Also with less workspace than threads.
TEST(AttentionTest, SameBitsForAllThreadCounts) {
  if (!OnCpu()) GTEST_SKIP() << "of the CPU's threads";
  const int before = omp_get_max_threads();
  for (const AttentionCase& c :
       {AttentionCase{.lengths = {100, 3, 290}, .heads = 6, .kv_heads = 2, .D = 24},
        AttentionCase{.lengths = {200}, .heads = 8, .kv_heads = 8, .dtype = DType::kBF16}}) {
    Bytes first;
    for (int threads : {1, 2, 3, 5}) {
      omp_set_num_threads(threads);
      Attended run(c);
      run.Forward();
      run.Backward();
      if (first.empty()) first = AllBytes(run);
      EXPECT_EQ(AllBytes(run), first) << threads << " threads";
    }
    Attended run(c);
    run.Forward();
    AttentionBackwardParams p = run.BackwardParams();
    p.workspace_bytes = AttentionBackwardBytes(SizesOf(run.Shape(), 1));
    ASSERT_EQ(Name(AttentionBackward(p, nullptr)), "ok: ");
    EXPECT_EQ(AllBytes(run), first) << "room for one";
  }
  omp_set_num_threads(before);
}

TEST(AttentionTest, SameBitsFromRunToRun) {
  const AttentionCase c = {.lengths = {70, 3}, .kv_heads = 1, .D = 24, .dropout = 0.2};
  Attended first(c), second(c);
  for (Attended* run : {&first, &second}) {
    run->Forward();
    run->Backward();
  }
  EXPECT_EQ(AllBytes(first), AllBytes(second));
}

// The query of documents of 20 and 150 that is `row` of their last 3 and 5.
int64_t QueryOf(int64_t row) { return row < 3 ? 17 + row : 165 + row - 3; }

// On CUDA tiles of keys begin with a document's first key, whatever is beside it and whichever of
// its queries there are: generation gives the bits of a run over everything.
TEST(AttentionTest, SameBitsWhateverIsBesideARow) {
  if (OnCpu()) GTEST_SKIP() << "the CPU's tiles follow from the longest document";
  const AttentionCase whole = {.lengths = {20, 150}, .heads = 1, .kv_heads = 1, .window = 70};
  AttentionCase last = whole;
  last.lengths = {3, 5};
  last.earlier = {17, 145};
  Attended all(whole), few(last);
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t c = 0; c < whole.D; ++c) few.q.Set(row, c, all.q.At(QueryOf(row), c));
  }
  all.Forward();
  few.Forward();
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(few.lse.At(row, 0), all.lse.At(QueryOf(row), 0)) << row;
    for (int64_t c = 0; c < whole.D; ++c)
      EXPECT_EQ(few.o.At(row, c), all.o.At(QueryOf(row), c)) << row;
  }
}

// Each, and all together.
TEST(AttentionTest, GradientsMayLieOverTheirInputs) {
  for (int64_t kv_heads : OnDevice<int64_t>({8, 2}, {1})) {
    for (int over = 1; over < 8; ++over) {
      if (!OnCpu() && over != 1 && over != 6 && over != 7) continue;
      const AttentionCase c = {.lengths = {OnCpu() ? 300 : 70, 20},
                               .heads = OnCpu() ? 8 : 2,
                               .kv_heads = kv_heads,
                               .D = OnCpu() ? 8 : 5};
      Attended apart(c), inside(c);
      apart.Forward();
      apart.Backward();
      inside.Forward();
      AttentionBackwardParams p = inside.BackwardParams();
      Matrix& dq = (over & 1) != 0 ? inside.q : inside.dq;
      Matrix& dk = (over & 2) != 0 ? inside.k : inside.dk;
      Matrix& dv = (over & 4) != 0 ? inside.v : inside.dv;
      p.dq = dq.data();
      p.dk = dk.data();
      p.dv = dv.data();
      ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
      EXPECT_EQ(dq.bytes(), apart.dq.bytes()) << over;
      EXPECT_EQ(dk.bytes(), apart.dk.bytes()) << over;
      EXPECT_EQ(dv.bytes(), apart.dv.bytes()) << over;
    }
  }
}

TEST(AttentionTest, GradientsThatAreNotWantedAreNotNeeded) {
  for (int64_t kv_heads : OnDevice<int64_t>({8, 2}, {1})) {
    const AttentionCase c = {
        .lengths = {OnCpu() ? 70 : 40}, .heads = OnCpu() ? 8 : 1, .kv_heads = kv_heads};
    Attended all(c);
    all.Forward();
    all.Backward();
    for (int wanted = 0; wanted < 8; ++wanted) {
      Attended run(c);
      run.Forward();
      AttentionBackwardParams p = run.BackwardParams();
      if ((wanted & 1) == 0) p.dq = nullptr;
      if ((wanted & 2) == 0) p.dk = nullptr;
      if ((wanted & 4) == 0) p.dv = nullptr;
      ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
      EXPECT_EQ(run.dq.bytes() == all.dq.bytes(), (wanted & 1) != 0);
      EXPECT_EQ(run.dk.bytes() == all.dk.bytes(), (wanted & 2) != 0);
      EXPECT_EQ(run.dv.bytes() == all.dv.bytes(), (wanted & 4) != 0);
    }
  }
}

// Other documents may hold anything, NaN as well; so may keys far behind the window.
TEST(AttentionTest, NothingComesFromWhatIsNotVisible) {
  const AttentionCase c = {.lengths = {50, 90, 40}, .D = 16, .window = 10};
  Attended clean(c), dirty(c);
  clean.Forward();
  clean.Backward();
  for (int64_t column = 0; column < dirty.k.C(); ++column) {
    for (int64_t row : {0, 49, 50, 140, 179}) {
      dirty.k.Set(row, column, NAN);
      dirty.v.Set(row, column, NAN);
    }
  }
  dirty.Forward();
  dirty.Backward();
  for (int64_t column = 0; column < c.heads * c.D; ++column) {
    for (int64_t row : {20, 80, 100, 139, 160}) {
      EXPECT_EQ(dirty.o.At(row, column), clean.o.At(row, column)) << row;
      EXPECT_EQ(dirty.dk.At(row, column), clean.dk.At(row, column)) << row;
    }
    for (int64_t row : {0, 9, 49, 50, 59, 140, 149, 179})
      EXPECT_TRUE(std::isnan(dirty.o.At(row, column))) << row;
  }
}

std::atomic<int64_t> counted;
void (*uncounted)(const TileProduct&);
void CountingMultiply(const TileProduct& product) {
  counted += 2 * product.rows * product.columns * product.terms * (product.pairs ? 2 : 1);
  uncounted(product);
}

// Operations of all products of a case: forward, backward.
std::pair<int64_t, int64_t> Operations(const AttentionCase& c) {
  const Loops& best = BestLoops();
  Loops counting = best;
  uncounted = best.multiply;
  counting.multiply = CountingMultiply;
  UseLoops(counting);
  Attended run(c);
  counted = 0;
  run.Forward();
  const int64_t forward = counted;
  counted = 0;
  run.Backward();
  UseLoops(best);
  return {forward, counted};
}

int64_t VisiblePairs(const AttentionCase& c) {
  int64_t pairs = 0;
  for (int64_t T : c.lengths) {
    for (int64_t i = 0; i < T; ++i) pairs += c.window == 0 ? i + 1 : std::min(i + 1, c.window);
  }
  return pairs * c.heads;
}

// T^2 / 2 in a document, T * w with a window, their sum over documents: counted in what the
// products do, which per row is at most a tile's rows and two panels more than what is visible.
TEST(AttentionTest, CostIsWhatIsVisible) {
  if (!OnCpu()) GTEST_SKIP() << "of the CPU's products; see WhatIsNotVisibleIsNotRead";
  for (const AttentionCase& c :
       {AttentionCase{.lengths = {2048}, .heads = 1, .kv_heads = 1, .D = 16},
        AttentionCase{.lengths = {2048}, .heads = 2, .kv_heads = 1, .D = 16, .window = 64},
        AttentionCase{.lengths = {2048}, .heads = 1, .kv_heads = 1, .D = 16, .window = 1},
        AttentionCase{.lengths = std::vector<int64_t>(16, 128), .D = 16},
        AttentionCase{.lengths = {100, 1000, 17, 400}, .D = 32}}) {
    const int64_t pairs = VisiblePairs(c);
    const int64_t beyond = (2 * kPanel + kTileRows) * c.tokens() * c.heads;
    const auto [forward, backward] = Operations(c);
    EXPECT_GE(forward, 4 * c.D * pairs) << c.Text();
    EXPECT_LE(forward, 4 * c.D * (pairs + beyond)) << c.Text();
    EXPECT_GE(backward, 10 * c.D * pairs) << c.Text();
    EXPECT_LE(backward, 10 * c.D * (pairs + beyond)) << c.Text();
  }
}

// Of a million keys only those in the window exist; the others lie outside of all memory.
TEST(AttentionTest, WhatIsNotVisibleIsNotRead) {
  constexpr int64_t kBefore = (1 << 20) - 128, kThere = 228, kQueries = 70;
  Attended run({.lengths = {kQueries},
                .heads = 1,
                .kv_heads = 1,
                .window = 40,
                .earlier = {kThere - kQueries}});
  const Expected expected(run);
  Attended far(run.c);
  far.key_counts = {kBefore + kThere};
  AttentionForwardParams p = far.ForwardParams();
  const auto begin = [](const Matrix& m) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(m.data()) -
                                         static_cast<uintptr_t>(kBefore * m.stride() * 4));
  };
  p.k = begin(far.k);
  p.v = begin(far.v);
  ASSERT_EQ(Name(AttentionForward(p, TestStream())), "ok: ");
  ExpectNear(far, far.o, expected.o, "o");
  ExpectNear(far, far.lse, expected.lse, "lse");
}

// A document's bytes of workspace grow with its length, not with its square.
TEST(AttentionTest, WorkspaceIsLinearInLength) {
  const auto sizes = [](int64_t T) {
    return AttentionSizes{.tokens = T,
                          .documents = 1,
                          .longest_queries = T,
                          .longest_keys = T,
                          .heads = 8,
                          .kv_heads = 8,
                          .D = 64,
                          .threads = 2};
  };
  EXPECT_EQ(AttentionForwardBytes(sizes(8192)) - AttentionForwardBytes(sizes(4096)),
            2 * 4096 * (64 + 2) * 4);
  EXPECT_EQ(AttentionBackwardBytes(sizes(8192)) - AttentionBackwardBytes(sizes(4096)),
            2 * 4096 * (64 + 1) * 4);
  EXPECT_EQ(AttentionBackwardStreamBytes(sizes(4096)), 4096 * 8 * (1 + 64) * 4);
}

TEST(AttentionTest, NothingToDoIsDone) {
  Attended run({.lengths = {0, 0}});
  run.Forward();
  run.Backward();
  Attended none({.lengths = {}});
  none.Forward();
}

TEST(AttentionTest, RefusesBadArguments) {
  Attended run({.lengths = {3, 2}, .heads = 4, .kv_heads = 2});
  const Bytes before = AllBytes(run);
  const std::vector<int64_t> falling = {0, 3, 2}, begins = {0, 3}, few = {3, 1};
  const auto forward = [&](auto change) {
    AttentionForwardParams p = run.ForwardParams();
    change(p);
    return Name(AttentionForward(p, TestStream()));
  };
  const auto backward = [&](auto change) {
    AttentionBackwardParams p = run.BackwardParams();
    change(p);
    return Name(AttentionBackward(p, TestStream()));
  };
  using F = AttentionForwardParams;
  using B = AttentionBackwardParams;
  EXPECT_EQ(forward([](F& p) { p.shape.kv_heads = 3; }), "bad shape: heads");
  EXPECT_EQ(forward([](F& p) { p.shape.D = 0; }), "bad shape: D");
  EXPECT_EQ(forward([](F& p) { p.shape.query_offsets = nullptr; }), "null pointer: query_offsets");
  EXPECT_EQ(forward([&](F& p) { p.shape.query_offsets = falling.data(); }),
            "bad index: query_offsets");
  EXPECT_EQ(forward([&](F& p) { p.shape.key_begins = begins.data(); }), "null pointer: key_counts");
  EXPECT_EQ(forward([&](F& p) {
              p.shape.key_begins = begins.data();
              p.shape.key_counts = few.data();
            }),
            "bad index: key_counts");
  EXPECT_EQ(forward([](F& p) { p.shape.window = -1; }), "bad value: window");
  EXPECT_EQ(forward([](F& p) { p.shape.scale = NAN; }), "bad value: scale");
  EXPECT_EQ(forward([](F& p) { p.shape.softcap = -1.0f; }), "bad value: softcap");
  EXPECT_EQ(forward([](F& p) { p.shape.dropout = 1.0; }), "bad value: dropout");
  EXPECT_EQ(forward([](F& p) { p.k_stride = 15; }), "bad stride: k_stride");
  EXPECT_EQ(forward([](F& p) { p.lse = nullptr; }), "null pointer: lse");
  EXPECT_EQ(forward([](F& p) { p.shape.dtype = static_cast<DType>(3); }), "bad dtype: dtype");
  if (OnCpu()) {
    EXPECT_EQ(forward([](F& p) { p.workspace_bytes = 64; }), "bad value: workspace_bytes");
  } else {
    EXPECT_EQ(forward([](F& p) { p.shape.D = 257; }), "bad shape: D");
    EXPECT_EQ(forward([](F& p) { p.shape.device_query_offsets = nullptr; }),
              "null pointer: device_query_offsets");
    EXPECT_EQ(forward([](F& p) {
                p.shape.key_begins = p.shape.key_counts = p.shape.query_offsets;
                p.shape.device_key_begins = p.shape.device_query_offsets;
              }),
              "null pointer: device_key_counts");
  }
  EXPECT_EQ(backward([](B& p) { p.dO = nullptr; }), "null pointer: dO");
  EXPECT_EQ(backward([](B& p) { p.dk_stride = 1; }), "bad stride: dk_stride");
  EXPECT_EQ(backward([](B& p) { p.workspace_bytes = 64; }), "bad value: workspace_bytes");
  EXPECT_EQ(backward([&](B& p) {
              p.shape.key_begins = begins.data();
              p.shape.key_counts = begins.data();
            }),
            "bad index: key_counts");
  EXPECT_EQ(AllBytes(run), before);
}

}  // namespace
}  // namespace snug::kernels
