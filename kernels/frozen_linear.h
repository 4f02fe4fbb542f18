// A linear layer over a frozen weight in 4 or 8 bits (QLoRA, eq. 5), forward and towards its input.
// W is dequantised tile by tile and rounded to dtype, so that the result is that of dequantising W
// to dtype first; products are summed up in fp32 by blocks of kFrozenTerms terms, and these sums in
// fp32: for 4097 terms within 5e-7 of the sum of their magnitudes. Weights have no gradient.
//
//   forward: y = x W'^T      backward: dx = dy W'
//
// Exceptions to the rules of types.h: on the CPU products are fused multiply-adds where the machine
// has them (and of pairs of bf16, where it multiplies these), so another instruction set gives
// other last bits; the number of threads does not.
#ifndef KERNELS_FROZEN_LINEAR_H_
#define KERNELS_FROZEN_LINEAR_H_

#include <cstdint>

#include "kernels/int8_weight.h"
#include "kernels/nf4.h"
#include "kernels/types.h"

namespace snug::kernels {

enum class FrozenKind : uint8_t { kNf4, kInt8 };

struct FrozenWeight {
  FrozenKind kind = FrozenKind::kNf4;
  Nf4Weight nf4;    // Of kNf4
  Int8Weight int8;  // Of kInt8
};

// Traffic: M*K + M*N elements and the weight's bytes, the latter once per 512 rows on the CPU and
// once per 64 on CUDA.
struct FrozenLinearParams {
  const void* in = nullptr;  // forward: x (M, K); backward: dy (M, N), dtype
  FrozenWeight W;            // (N, K)
  void* out = nullptr;       // forward: y (M, N); backward: dx (M, K), dtype
  int64_t M = 0, N = 0, K = 0;
  int64_t in_stride = 0, out_stride = 0;
  DType dtype = DType::kF32;
  void* workspace = nullptr;    // On the CPU; as many threads work as it has room for.
  int64_t workspace_bytes = 0;  // >= FrozenLinearWorkspace(1)
};
Error FrozenLinearForward(const FrozenLinearParams& p, Stream stream);
Error FrozenLinearBackward(const FrozenLinearParams& p, Stream stream);

// What a thread of the CPU works on: so many rows of `in` times so many columns of `out`, so many
// terms (on CUDA, too, a block of a sum) at a time. 896 KiB of tiles, 672 of them used where pairs
// are multiplied: they stay in L2, and laying them out costs a tenth of their product.
inline constexpr int64_t kFrozenRows = 512, kFrozenColumns = 256, kFrozenTerms = 128;

// Bytes for `threads` threads: out, in and W'.
inline constexpr int64_t FrozenLinearWorkspace(int64_t threads) {
  return threads * 4 *
         (kFrozenRows * kFrozenColumns + kFrozenRows * kFrozenTerms +
          kFrozenColumns * kFrozenTerms);
}

}  // namespace snug::kernels

#endif  // KERNELS_FROZEN_LINEAR_H_
