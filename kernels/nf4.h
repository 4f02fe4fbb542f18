// 4-bit NormalFloat weights of a frozen base (Dettmers et al. 2023, QLoRA), to the
// definition of bitsandbytes (functional.quantize_4bit with quant_type "nf4", blocksize 64,
// compress_statistics as chosen):
//
//   W (N, K) is one row of N*K elements, in blocks of 64; the last one may be shorter.
//   absmax[b] = max |w| of block b       w' = level[code] * absmax[b]
//   code = the nearest of 16 levels to w * (1 / absmax[b]), ties to the lower one (nf4_levels.h)
//   byte k holds element 2k in its upper half and 2k + 1 in its lower one.
// Double quantisation stores absmax in 8 bits, in groups of 256:
//   offset = mean absmax       scale[g] = max |absmax - offset| of group g
//   absmax'[b] = map[absmax_codes[b]] * scale[b / 256] + offset
//   absmax_codes[b] = the nearest of map's 256 entries to (absmax[b] - offset) * (1 / scale[g])
// with the signed dynamic map of Dettmers et al. 2021 (8-bit optimizers), as functional.
// create_dynamic_map() computes it in fp32 (nf4_levels.h). A checkpoint of bitsandbytes is read by
// pointing at its tensors: weight, absmax, nested_absmax, and the nested offset.
//
// What the definition leaves open: the mean is rounded to fp32 from a sum in fp64, and a block (or
// group) of zeros, which has no 1 / absmax, gets the code of 0. A half byte behind the last element
// holds the code of 0 as well. NaN and infinity are not representable; their codes are unspecified.
#ifndef KERNELS_NF4_H_
#define KERNELS_NF4_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

inline constexpr int64_t kNf4Block = 64, kNf4Group = 256;

SNUG_HOST_DEVICE inline constexpr int64_t Nf4CodeBytes(int64_t n) { return (n + 1) / 2; }
SNUG_HOST_DEVICE inline constexpr int64_t Nf4Blocks(int64_t n) {
  return (n + kNf4Block - 1) / kNf4Block;
}
SNUG_HOST_DEVICE inline constexpr int64_t Nf4Groups(int64_t n) {
  return (Nf4Blocks(n) + kNf4Group - 1) / kNf4Group;
}

// n = N*K elements. Without double quantisation `absmax` is (Nf4Blocks), and the others are null.
struct Nf4Weight {
  void* codes = nullptr;            // (Nf4CodeBytes) bytes
  float* absmax = nullptr;          // (Nf4Groups): scale; or (Nf4Blocks)
  uint8_t* absmax_codes = nullptr;  // (Nf4Blocks), or null
  float* offset = nullptr;          // (1), or null
};

// Bytes of all that is stored: 4.127 bits per element with double quantisation, else 4.5.
inline constexpr int64_t Nf4Bytes(int64_t n, bool nested) {
  return Nf4CodeBytes(n) + (nested ? Nf4Blocks(n) + 4 * Nf4Groups(n) + 4 : 4 * Nf4Blocks(n));
}

// w -> codes and absmax. The same bytes on the CPU and on CUDA. Once per weight, when it is loaded.
// Traffic: N*K elements + Nf4Bytes.
struct QuantizeNf4Params {
  const void* w = nullptr;  // (N, K), dtype
  Nf4Weight to;
  int64_t N = 0, K = 0, w_stride = 0;
  DType dtype = DType::kF32;
  void* workspace = nullptr;  // With double quantisation: QuantizeNf4Workspace bytes, aligned to 8
};
Error QuantizeNf4(const QuantizeNf4Params& p, Stream stream);

inline constexpr int64_t QuantizeNf4Workspace(int64_t n) {
  return 8 * Nf4Groups(n) + 4 * Nf4Blocks(n);
}

// codes -> w', computed in fp32 and rounded once. Traffic: Nf4Bytes + N*K elements.
struct DequantizeNf4Params {
  Nf4Weight from;
  void* w = nullptr;  // (N, K), dtype
  int64_t N = 0, K = 0, w_stride = 0;
  DType dtype = DType::kF32;
};
Error DequantizeNf4(const DequantizeNf4Params& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_NF4_H_
