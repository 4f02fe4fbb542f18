// Attention whose documents are grids, with a bias by how far apart two places are, against the
// reference in double.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// A window of `side` x `side` places, whole or in parts.
AttentionCase Windows(int64_t side, std::vector<int64_t> rows, std::vector<int64_t> columns) {
  AttentionCase c = {.lengths = {},
                     .heads = 2,
                     .kv_heads = 2,
                     .causal = false,
                     .bias = (2 * side - 1) * (2 * side - 1),
                     .origin = 2 * side * (side - 1),
                     .pitch = 2 * side - 1,
                     .widths = std::move(columns)};
  for (size_t d = 0; d < rows.size(); ++d) c.lengths.push_back(rows[d] * c.widths[d]);
  return c;
}

// Of one tile and of several, and documents without rows among them.
TEST(AttentionGridsTest, GridsMatchReference) {
  CheckAttention(Windows(7, {7, 7, 4, 4, 3}, {7, 7, 3, 4, 7}));
  CheckAttention(Windows(12, {12, 0, 6, 1, 12}, {12, 12, 6, 12, 1}));
  CheckAttention(Windows(1, {1, 1}, {1, 1}));
  CheckAttention(Windows(2, {2, 1, 1}, {2, 2, 1}));
  if (OnCpu()) CheckAttention(Windows(24, {24, 12}, {24, 12}));
}

TEST(AttentionGridsTest, GridsWithAllFeaturesTogether) {
  OnEachInstructionSet([] {
    for (DType dtype : OnDevice<DType>({DType::kF32, DType::kBF16, DType::kF16}, {DType::kF32})) {
      AttentionCase c = Windows(9, {9, 5, 4}, {9, 9, 5});
      c.kv_heads = 1;
      c.D = 16;
      c.softcap = 5.0;
      c.dropout = 0.3;
      c.dtype = dtype;
      CheckAttention(c);
    }
  });
}

// A grid's last row may be cut, and a table may have more entries than there are distances.
TEST(AttentionGridsTest, GridsMayBeCut) {
  CheckAttention({.lengths = {71, 5},
                  .causal = false,
                  .bias = 500,
                  .origin = 250,
                  .pitch = 25,
                  .widths = {10, 3}});
}

TEST(AttentionGridsTest, GradientsOfGridsAreFiniteDifferences) {
  AttentionCase c = Windows(2, {2, 1, 2}, {2, 2, 1});
  c.softcap = 2.0;
  Attended run(c);
  run.Forward();
  run.Backward();
  ExpectClose(run.dq, DifferencesOfLoss(run, &AttentionInputs::q), 8.0);
  ExpectClose(run.dk, DifferencesOfLoss(run, &AttentionInputs::k), 8.0);
  ExpectClose(run.d_bias, DifferencesOfLoss(run, &AttentionInputs::bias), 8.0);
}

}  // namespace
}  // namespace snug::kernels
