// Attention against a reference in double that knows nothing of blocks, and against finite
// differences. What else its header promises: attention_contract_test.cc.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/attention_testing.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// Below, at and above tiles, panels and blocks; in all types.
TEST(AttentionTest, MatchesReferenceAtAllLengths) {
  for (int64_t T : OnDevice<int64_t>({1, 2, 31, 33, 64, 127, 257, 513}, {1, 31, 64, 65, 150}))
    CheckAttention({.lengths = {T}});
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t T : OnDevice<int64_t>({1, 2, 31, 33, 64, 127, 257, 513}, {2, 127}))
      CheckAttention({.lengths = {T}, .heads = 1, .kv_heads = 1, .dtype = dtype});
  }
  if (OnCpu()) CheckAttention({.lengths = {1100}, .heads = 1, .kv_heads = 1, .D = 16});
}

// Thousands of keys, one more than tiles, panels and blocks divide: a whole document, a window of
// one, and what a few queries behind them see. Emulated, a whole document would take long.
TEST(AttentionTest, MatchesReferenceFor4097Keys) {
  for (DType dtype : kTypes) {
    if (OnCpu()) CheckAttention({.lengths = {4097}, .heads = 1, .kv_heads = 1, .dtype = dtype});
    if (!OnCpu() && dtype == DType::kF16) continue;
    for (const AttentionCase& c :
         {AttentionCase{.lengths = {4097}, .heads = 1, .kv_heads = 1, .D = 3, .window = 33},
          AttentionCase{.lengths = {31}, .heads = 2, .kv_heads = 1, .D = 3, .earlier = {4066}}}) {
      AttentionCase typed = c;
      typed.dtype = dtype;
      CheckAttention(typed);
    }
  }
}

// Of one head, D not dividing by 8 leaves rows unaligned.
TEST(AttentionTest, MatchesReferenceAtAllHeadWidths) {
  if (!OnCpu()) {
    for (int64_t D : {1, 30, 80, 132})
      CheckAttention({.lengths = {70}, .heads = 1, .kv_heads = 1, .D = D});
    for (int64_t D : {7, 64, 96, 256}) {
      CheckAttention({.lengths = {33}, .heads = 1, .kv_heads = 1, .D = D, .dtype = DType::kBF16});
      CheckAttention({.lengths = {20}, .heads = 1, .kv_heads = 1, .D = D, .dtype = DType::kF16});
    }
    return;
  }
  OnEachInstructionSet([] {
    for (DType dtype : kTypes) {
      for (int64_t D : {1, 8, 16, 20, 64, 80, 96, 128, 256})
        CheckAttention({.lengths = {70}, .D = D, .dtype = dtype});
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
      CheckAttention({.lengths = lengths, .heads = heads, .kv_heads = kv_heads, .dtype = dtype});
    }
  }
}

// A query sees itself alone, a few, all but one, all, and more than there are.
TEST(AttentionTest, MatchesReferenceForAllWindows) {
  for (int64_t window : OnDevice<int64_t>(
           {1, 2, 7, 31, 32, 33, 64, 100, 255, 256, 257, 512, 513, 5000}, {1, 7, 64, 65, 149})) {
    const int64_t T = OnCpu() ? 513 : 150;
    CheckAttention({.lengths = {T, 20}, .heads = 1, .kv_heads = 1, .D = 16, .window = window});
  }
  CheckAttention({.lengths = {OnCpu() ? 300 : 100},
                  .heads = 4,
                  .kv_heads = 2,
                  .window = 48,
                  .dtype = DType::kBF16});
}

// Lengths around those of tiles, panels and blocks, documents that do not see each other, and keys
// before the first query.
TEST(AttentionTest, MatchesReferenceWhereItIsNotCausal) {
  OnEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
      for (int64_t T : OnDevice<int64_t>({1, 2, 31, 33, 65, 257, 513}, {1, 64, 65, 130})) {
        CheckAttention({.lengths = {3, T, 17}, .causal = false, .dtype = dtype});
      }
      CheckAttention({.lengths = {OnCpu() ? 300 : 70, 20},
                      .heads = 4,
                      .kv_heads = 2,
                      .D = 16,
                      .causal = false,
                      .softcap = 5.0,
                      .dropout = 0.3,
                      .dtype = dtype});
    }
    CheckAttention({.lengths = {5, 40}, .causal = false, .earlier = {70, 1}});
  });
}

TEST(AttentionTest, MatchesReferenceWithSoftcap) {
  OnEachInstructionSet([] {
    const int64_t T = OnCpu() ? 130 : 70;
    for (double spread : OnDevice<double>({0.1, 1.0, 4.0}, {0.1, 4.0})) {
      CheckAttention({.lengths = {T, 5}, .D = 16, .softcap = 5.0, .spread = spread});
      CheckAttention({.lengths = {T}, .D = 16, .window = 40, .softcap = 50.0, .spread = spread});
    }
    CheckAttention({.lengths = {T}, .D = 16, .softcap = 5.0, .dtype = DType::kBF16});
  });
}

// With the same words as the reference draws, forward and backward, whatever the blocks.
TEST(AttentionTest, MatchesReferenceWithDropout) {
  OnEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
      for (double rate : {0.1, 0.9}) {
        CheckAttention({.lengths = {OnCpu() ? 300 : 135, 1, 70},
                        .heads = OnCpu() ? 4 : 2,
                        .kv_heads = OnCpu() ? 2 : 1,
                        .D = 16,
                        .dropout = rate,
                        .dtype = dtype});
      }
    }
    CheckAttention({.lengths = {OnCpu() ? 600 : 140},
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
  if (!OnCpu()) return CheckAttention({.lengths = {0, 1, 70, 8, 0, 0, 127, 33, 2, 64, 0}});
  for (DType dtype : {DType::kF32, DType::kBF16})
    CheckAttention(
        {.lengths = {1, 70, 8, 0, 300, 33, 2, 64}, .heads = 4, .kv_heads = 2, .dtype = dtype});
}

// Scores far beyond what exp can take; nearly all of the weight on one key.
TEST(AttentionTest, MatchesReferenceForLargeScores) {
  CheckAttention({.lengths = {80}, .D = 16, .spread = 8.0});
}

// As a decoder reads an encoder: a document's keys are as many as they like, one at least. Of one
// key gradients are rounding alone, which in bf16 is more than the reference's other errors.
TEST(AttentionTest, KeysMayBeFewerThanQueries) {
  OnEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
      const int64_t fewest = dtype == DType::kF32 ? 1 : 10;
      CheckAttention({.lengths = {70, 1, 0, 140, 12},
                      .heads = 2,
                      .kv_heads = 1,
                      .D = 16,
                      .causal = false,
                      .softcap = 5.0,
                      .dropout = 0.2,
                      .dtype = dtype,
                      .earlier = {fewest - 70, 66, 0, -75, -1}});
    }
  });
}

// What generation with a cache does: one query or a few behind many keys, and the whole prompt at
// once. Backward gives what keys before the queries get, too, though no query of theirs is there.
TEST(AttentionTest, QueriesMayBeFewerThanKeys) {
  for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16}, {DType::kF32})) {
    for (int64_t window : {0, 1, 100}) {
      Attended run(
          {.lengths = {1, 3, 40, 0, 1},
           .heads = OnCpu() ? 4 : 2,
           .kv_heads = OnCpu() ? 2 : 1,
           .D = 16,
           .window = window,
           .dropout = window == 100 ? 0.2 : 0.0,
           .dtype = dtype,
           .earlier = {0, OnCpu() ? 500 : 200, OnCpu() ? 300 : 90, 9, OnCpu() ? 700 : 63}});
      const Expected expected(run);
      CheckAttentionForward(run, expected);
      CheckAttentionBackward(run, expected);
    }
  }
}

// All of a document's keys and none of its queries, rows of no document in between, one slice of a
// group's heads or several. Gradients of keys that no query sees become 0; those of rows of no
// document stay what they were, NaN.
TEST(AttentionTest, KeysMayLieApart) {
  for (int64_t heads : OnDevice<int64_t>({2, 16}, {2})) {
    Attended run({.lengths = {0, 70, 0, 3, 20},
                  .heads = heads,
                  .kv_heads = heads / 2,
                  .window = 50,
                  .softcap = 3.0,
                  .earlier = {80, 100, 5, 190, 30}});
    run.key_begins[0] += 70;
    run.key_counts[0] -= 75;
    run.key_counts[1] -= 66;
    run.key_counts[3] -= 11;
    const Expected expected(run);
    CheckAttentionForward(run, expected);
    run.Backward();
    std::vector<bool> has_document(static_cast<size_t>(run.k.N()), false);
    for (size_t d = 0; d < run.key_counts.size(); ++d)
      std::fill_n(has_document.begin() + run.key_begins[d], run.key_counts[d], true);
    for (Matrix* gradient : {&run.dk, &run.dv}) {
      for (int64_t row = 0; row < run.k.N(); ++row) {
        if (has_document[static_cast<size_t>(row)]) continue;
        for (int64_t c = 0; c < run.k.C(); ++c) {
          EXPECT_TRUE(std::isnan(gradient->At(row, c))) << row;
          gradient->Set(row, c, 0.0);
        }
      }
    }
    for (int64_t row : {70, 74, 250, 254, 255}) {
      EXPECT_EQ(run.dk.At(row, 0), 0.0) << row;
      EXPECT_EQ(run.dv.At(row, 0), 0.0) << row;
    }
    ExpectNear(run, run.dq, expected.dq, "dq");
    ExpectNear(run, run.dk, expected.dk, "dk");
    ExpectNear(run, run.dv, expected.dv, "dv");
  }
}

// Every output of a tiny case against differences of the reference, inputs being fp32.
TEST(AttentionTest, GradientsAreFiniteDifferences) {
  for (const std::vector<int64_t>& earlier : {std::vector<int64_t>{}, {2, 4}}) {
    Attended run({.lengths = {5, 3},
                  .heads = 2,
                  .kv_heads = 1,
                  .D = 4,
                  .window = 3,
                  .softcap = 2.0,
                  .earlier = earlier});
    run.Forward();
    run.Backward();
    ExpectClose(run.dq, DifferencesOfLoss(run, &AttentionInputs::q), 8.0);
    ExpectClose(run.dk, DifferencesOfLoss(run, &AttentionInputs::k), 8.0);
    ExpectClose(run.dv, DifferencesOfLoss(run, &AttentionInputs::v), 8.0);
  }
}

}  // namespace
}  // namespace snug::kernels
