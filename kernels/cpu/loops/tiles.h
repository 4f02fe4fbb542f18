// What attention asks of the inner loops: tiles of a few rows that fit the registers, and the forms
// in which operands are laid out for them. Plain data; knows no instruction set.
#ifndef KERNELS_CPU_LOOPS_TILES_H_
#define KERNELS_CPU_LOOPS_TILES_H_

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels {

inline constexpr int64_t kTileRows = 8;  // Rows of scores that are worked on at a time.
inline constexpr int64_t kPanel = 32;    // Columns of a product that stay in registers.

// Operands of products are words of 32 bits along k: an fp32, or on machines that multiply them
// directly a pair of bf16, elements 2k and 2k + 1.
enum class TileForm : uint8_t {
  kRows,     // to[row * padded_width + k]: the left operand, k along the row.
  kTerms,    // to[k * padded_width + c]: the right operand, k being the rows (pairs of them).
  kColumns,  // to[row / kPanel * (panel) + k * kPanel + row % kPanel]: the right operand, k along
             // the row; panels of words x kPanel, the last one filled up with zeros.
};

// `rows` rows of `width` elements, laid out for products. Elements from `width` on, up to
// padded_width, are zero in kRows and kTerms, and so is the second half of a pair that has none.
struct LoadTile {
  const void* x = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  bool pairs = false;  // Of bf16 elements; else they become fp32.
  TileForm form = TileForm::kRows;
  int64_t rows = 0, width = 0, padded_width = 0;
  float* to = nullptr;
};
inline int64_t WordsOf(int64_t elements, bool pairs) {
  return pairs ? (elements + 1) / 2 : elements;
}

// The way back: y[row * stride + c] = x[row * padded_width + c] * factor * row_factor[row].
struct StoreTile {
  const float* x = nullptr;
  int64_t padded_width = 0;
  float factor = 1.0f;
  const float* row_factor = nullptr;  // Null: 1.
  void* y = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0;
};

// c[m, n] (+)= sum_k a[m * a_row + k * a_term] * b[n / kPanel * b_panel + k * b_term + n % kPanel].
// a and b are words: fp32, or with `pairs` two bf16 whose two products are added. c is fp32.
struct TileProduct {
  const float* a = nullptr;
  int64_t a_row = 0, a_term = 0;
  const float* b = nullptr;
  int64_t b_term = 0, b_panel = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  int64_t rows = 0, columns = 0, terms = 0;  // Columns: a multiple of 16. Terms: words.
  bool accumulate = false;
  bool pairs = false;
};

// Which columns of a block of scores the rows see: row r those in [r + low, r + high), and none
// from `end` on.
struct Band {
  static constexpr int64_t kAll = int64_t{1} << 40;
  int64_t low = 0, high = 0, end = kAll;
};

struct ScoreRule {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none.
};

// Which p of a tile dropout keeps: keep[row * stride + c] all ones, or zero.
struct KeepTile {
  RandomSite site;
  double rate = 0.0;
  // Words of 64 neighbouring columns are a group of 16 Philox blocks.
  int64_t first_group = 0;  // Of row 0 and column 0 of the document's keys.
  int64_t row_groups = 0;   // From a row to the next.
  int64_t column = 0;       // The tile's first, a multiple of 16.
  int64_t rows = 0, columns = 0;
  int32_t* keep = nullptr;
  int64_t stride = 0;
};

// What KeepTile found, for the tiles below. Null: nothing is dropped.
struct Kept {
  const int32_t* keep = nullptr;
  int64_t stride = 0;
  float factor = 1.0f;  // Of what is kept.
};

// One step of softmax over `columns` more columns (a multiple of 16) of up to kTileRows rows.
// Scores become p relative to the new maximum, 0 where a row does not see; what was summed up so
// far is scaled to the new maximum. What is dropped counts in the sum and becomes 0 then; what is
// kept is not scaled here. With `pairs` p is bf16, from the beginning of each row on.
struct SoftmaxTile {
  float* scores = nullptr;  // Column 0 is the tile's first.
  int64_t stride = 0, rows = 0, columns = 0;
  Band band;  // Of row 0 and column 0 of the tile.
  ScoreRule rule;
  const float* bias = nullptr;  // Of row r and column c: bias[r * bias_step + c]. Null: none.
  int64_t bias_step = 0;
  float* max = nullptr;  // (rows)
  float* sum = nullptr;  // (rows)
  float* out = nullptr;  // (rows, out_width)
  int64_t out_width = 0;
  Kept kept;
  bool pairs = false;
};

// Scores become p after dropout, dp (before it) becomes ds without the scale; both 0 where a row
// does not see. With `pairs` they become words of two rows, at the place of the first; and ds_rows
// gets ds as bf16, row by row, where else dp itself serves.
struct GradientTile {
  float* scores = nullptr;
  float* dp = nullptr;
  int64_t stride = 0, rows = 0, columns = 0;
  Band band;
  ScoreRule rule;
  const float* bias = nullptr;  // As of SoftmaxTile;
  float* d_bias = nullptr;      // its gradient is added here likewise, unless this is null.
  int64_t bias_step = 0;
  const float* lse = nullptr;  // lse[row * lse_stride]
  int64_t lse_stride = 0;
  const float* delta = nullptr;  // (rows)
  float* ds_rows = nullptr;      // (rows, ds_stride) words
  int64_t ds_stride = 0;
  Kept kept;
  bool pairs = false;
};

// delta[row] = a[row] . b[row]
struct RowDots {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t a_stride = 0, b_stride = 0;
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0;
  float* delta = nullptr;
};

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_TILES_H_
