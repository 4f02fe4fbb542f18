// What ops that sum columns over many rows need on CUDA: rows are summed in parts, and the parts'
// sums wait in workspace until they are added, in order. The CPU needs no workspace.
#ifndef KERNELS_COLUMN_SUMS_H_
#define KERNELS_COLUMN_SUMS_H_

#include <cstdint>

namespace snug::kernels {

// At most 128 parts, of at least 64 rows: enough blocks for a large GPU, little to add.
inline constexpr int64_t kMaxColumnParts = 128, kMinPartRows = 64;

inline constexpr int64_t ColumnParts(int64_t N) {
  const int64_t parts = (N + kMinPartRows - 1) / kMinPartRows;
  return parts < 1 ? 1 : parts > kMaxColumnParts ? kMaxColumnParts : parts;
}

// Bytes of workspace, for any N rows of C columns on CUDA. Contents: none needed, none left.
inline constexpr int64_t ColumnSumsWorkspace(int64_t N, int64_t C) {
  return ColumnParts(N) * C * static_cast<int64_t>(sizeof(float));
}

}  // namespace snug::kernels

#endif  // KERNELS_COLUMN_SUMS_H_
