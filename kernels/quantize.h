// Stashes in 8 or 4 bits: asymmetric codes with stochastic rounding (Mesa, Pan et al. 2021, arXiv
// 2111.11124), in the tensor's own layout.
//
//   code = floor(clamp((x - low) / step + u, 0, levels))      x' = low + step * code
//
// levels = 255 or 15. u in [0, 1) is a multiple of 2^-16, one for each element: half c % 8 of
// Philox block (first_row + i) * ceil(C / 128) * 16 + c / 8 (low halves first), so that E[x'] = x
// within step * 2^-17; to nearest: u = 1/2. |x' - x| < step within the range; what lies outside
// becomes its end. The CPU and CUDA give the same codes and ranges, bit by bit (quantize_code.h).
//
// A range is {step, low}: that of a block of 128 neighbours of a row, found while quantising, or of
// a group (a head, a block of channels or of rows) as UpdateRanges estimates it. Dequantising takes
// the ranges that quantising took: they belong to the codes, not to the module. A block or group
// with NaN, infinity or a width beyond fp32, and a group without rows, has the range NaN: all of it
// comes back as NaN.
#ifndef KERNELS_QUANTIZE_H_
#define KERNELS_QUANTIZE_H_

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels {

enum class CodeBits : uint8_t { k8, k4 };
enum class RangeKind : uint8_t { kBlocks, kGroups };
enum class Rounding : uint8_t { kStochastic, kNearest };

inline constexpr int64_t kRangeBlock = 128;

// Of a group. A block's are two bf16, low rounded down and step up, so that they hold its values.
struct Range32 {
  float step, low;
};
struct Range16 {
  bf16 step, low;
};

// Element (i, c) is in group i / run_rows % row_groups * (C / group_columns) + c / group_columns.
//   channels of (B, T, C) in G groups:  {.group_columns = C / G}
//   heads of (B, A, P, Q):              {.run_rows = P, .row_groups = A}
//   blocks of 64 rows:                  {.run_rows = 64, .row_groups = ceil(N / 64)}
struct Grouping {
  int64_t run_rows = 1, row_groups = 1;
  int64_t group_columns = 0;  // Divides C; 0: C.
};

// An (N, C) tensor as codes. 4 bits: the even column in the lower half of a byte.
struct Quantized {
  void* codes = nullptr;     // (N, CodeBytes(C)), rows codes_stride bytes apart
  void* ranges = nullptr;    // kBlocks: (N, RangeBlocks(C)) Range16; kGroups: (groups) Range32
  int64_t codes_stride = 0;  // Bytes
  int64_t first_row = 0;     // Of the tensor: where this call's rows begin in it.
  CodeBits bits = CodeBits::k8;
  RangeKind kind = RangeKind::kBlocks;
  Grouping grouping;  // Of kGroups
};

// How codes are rounded.
struct Dither {
  Rounding rounding = Rounding::kStochastic;
  RandomSite site;  // Of kStochastic
};

inline constexpr int64_t CodeBytes(int64_t C, CodeBits bits) {
  return bits == CodeBits::k8 ? C : (C + 1) / 2;
}
inline constexpr int64_t RangeBlocks(int64_t C) { return (C + kRangeBlock - 1) / kRangeBlock; }
inline constexpr int64_t GroupsOf(const Grouping& g, int64_t C) {
  return g.row_groups * (g.group_columns == 0 ? 1 : C / g.group_columns);
}
// Bytes of ranges of N rows.
inline constexpr int64_t RangeBytes(const Quantized& q, int64_t N, int64_t C) {
  return q.kind == RangeKind::kBlocks ? N * RangeBlocks(C) * int64_t{sizeof(Range16)}
                                      : GroupsOf(q.grouping, C) * int64_t{sizeof(Range32)};
}

// x -> the groups' ranges. With state, alpha (the width) and beta (the minimum) first take in this
// call's: exactly on a group's first update, then a += (1 - decay) (new - a), as Mesa has it.
// What is not finite does not enter the state. Once per step: a recompute keeps the ranges it has.
// Traffic: N*C elements.
struct UpdateRangesParams {
  const void* x = nullptr;     // (N, C), dtype
  float* alpha = nullptr;      // (groups), or null with beta and updates: this call's own range
  float* beta = nullptr;       // (groups)
  int32_t* updates = nullptr;  // (groups): how many there were; 0 before the first
  Range32* ranges = nullptr;   // (groups)
  int64_t N = 0, C = 0, x_stride = 0;
  DType dtype = DType::kF32;
  CodeBits bits = CodeBits::k8;
  Grouping grouping;
  float decay = 0.9f;         // [0, 1)
  void* workspace = nullptr;  // UpdateRangesWorkspace bytes
};
Error UpdateRanges(const UpdateRangesParams& p, Stream stream);

// Parts of the rows that are reduced on their own: enough blocks for a large GPU.
inline constexpr int64_t RangeParts(int64_t N, int64_t groups) {
  constexpr int64_t kUnits = 1024, kLeastRows = 16;
  const int64_t wanted = groups < kUnits ? kUnits / groups : 1;
  const int64_t most = (N + kLeastRows - 1) / kLeastRows;
  return most < 1 ? 1 : wanted < most ? wanted : most;
}
inline constexpr int64_t UpdateRangesWorkspace(int64_t N, int64_t groups) {
  return RangeParts(N, groups) * groups * 3 * int64_t{sizeof(float)};
}

// x -> codes, and the ranges of blocks; those of groups are read. A NaN in a group whose range is
// finite (another call's) becomes code 0. Traffic: N*C elements + codes (+ ranges).
struct QuantizeParams {
  const void* x = nullptr;  // (N, C), dtype
  Quantized to;
  int64_t N = 0, C = 0, x_stride = 0;
  DType dtype = DType::kF32;
  Dither dither;
};
Error Quantize(const QuantizeParams& p, Stream stream);

// codes, ranges -> y. Traffic: codes + N*C elements.
struct DequantizeParams {
  Quantized from;
  void* y = nullptr;  // (N, C), dtype
  int64_t N = 0, C = 0, y_stride = 0;
  DType dtype = DType::kF32;
};
Error Dequantize(const DequantizeParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_QUANTIZE_H_
