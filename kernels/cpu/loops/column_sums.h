// Sums over rows, column by column: in fp32 over blocks of rows, the blocks in fp64.
#ifndef KERNELS_CPU_LOOPS_COLUMN_SUMS_H_
#define KERNELS_CPU_LOOPS_COLUMN_SUMS_H_

#include <cstdint>

#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

inline constexpr int64_t kBlockRows = 32;       // Rows that one fp32 sum spans.
inline constexpr int64_t kBlockColumns = 1024;  // Two sums of each, 8 KiB and 16 KiB, stay in L1.

// Rows from which those are fetched that are added next: what a block has of a row is too short for
// the hardware to see that it goes on, and where.
inline constexpr int64_t kRowsAhead = 8;

// Elements from row i, the first of `rows` that are added together, to the one that is to be
// fetched at its place; 0 where there are no such rows.
static SNUG_INLINE int64_t Ahead(int64_t i, int64_t rows, int64_t N, int64_t stride) {
  return i + kRowsAhead + rows <= N ? kRowsAhead * stride : 0;
}
static SNUG_INLINE void Fetch(const void* x) { __builtin_prefetch(x); }

// How many rows are added together: memory delivers them side by side.
template <int kCount>
struct Together {
  static constexpr int kRows = kCount;
};
// body(Together<4>{} or Together<1>{}, its first row) for all rows, in order.
template <typename Body>
static SNUG_INLINE void ByFours(Range rows, Body body) {
  int64_t i = rows.begin;
  for (; i + 4 <= rows.end; i += 4) body(Together<4>{}, i);
  for (; i < rows.end; ++i) body(Together<1>{}, i);
}

// results[k] (+)= the k-th sums of columns [all) over N rows; null: nothing is kept. add(rows,
// columns, sums) adds a block of rows into sums[k], one per column of the block.
template <int K, typename AddBlock>
static inline void ColumnSumSets(int64_t N, Range all, float* const (&results)[K], bool accumulate,
                                 AddBlock add) {
  constexpr int64_t kColumns = 2 * kBlockColumns / K;
  for (int64_t first = all.begin; first < all.end; first += kColumns) {
    const Range columns = {first, first + kColumns < all.end ? first + kColumns : all.end};
    const int64_t n = columns.end - columns.begin;
    double totals[K][kColumns] = {};
    for (int64_t row = 0; row < N; row += kBlockRows) {
      float sums[K][kColumns] = {};
      add(Range{row, row + kBlockRows < N ? row + kBlockRows : N}, columns, sums);
      for (int k = 0; k < K; ++k) {
        for (int64_t c = 0; c < n; ++c) totals[k][c] += static_cast<double>(sums[k][c]);
      }
    }
    for (int k = 0; k < K; ++k) {
      if (results[k] == nullptr) continue;
      for (int64_t c = 0; c < n; ++c) {
        float& sum = results[k][first + c];
        sum = static_cast<float>(totals[k][c] + (accumulate ? static_cast<double>(sum) : 0.0));
      }
    }
  }
}

// The same for one sum.
template <typename AddBlock>
static inline void ColumnSums(int64_t N, Range all, float* result, bool accumulate, AddBlock add) {
  float* const results[] = {result};
  ColumnSumSets(N, all, results, accumulate,
                [&](Range rows, Range columns, auto& sums) { add(rows, columns, sums[0]); });
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_COLUMN_SUMS_H_
