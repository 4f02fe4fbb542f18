// Reversible streams, exact to the bit: a stream is a fixed-point number v of 32 bits, x = v *
// 2^-q, so that what a sub-layer adds in forward is taken away in backward without a trace
// (floating-point streams drift; Zhu et al. 2023, "PaReprop", and Mangalam et al. 2022, "Reversible
// ViT", recompute with floats). The sub-layer must give the same bits for the same input.
//
//   ToFixed(x)     rint(x * 2^q): to nearest, ties to even; NaN is 0, what is beyond 32 bits the
//                  nearest bound
//
//   ToFloat(v)     float(v) * 2^-q: rounded to fp32, then to the type of y
//
//   FixedAdd       v' = v + ToFixed(f), modulo 2^32. With `subtract` it is its exact inverse.
//
//   FixedShiftAdd  v' = floor(v / 2^K) + ToFixed(f), and the K low bits of v beside it. This is
//                  the coupling y = 2^-K x + F, and its inverse is exact.
//
// In backward rounding counts as the identity: dx = dv', df = dv' (2^-K dv' for v of the second).
// Arithmetic wraps around instead of failing; `overflow` tells that a stream left [-2^30, 2^30),
// the half of the range that leaves it room, or that an f was not finite or too large: then the
// values of this step are not to be trusted, though forward and backward still are exact inverses.
#ifndef KERNELS_REVERSIBLE_H_
#define KERNELS_REVERSIBLE_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

inline constexpr int kFixedBits = 20;  // q: steps of 9.5e-7, range +-2048.
inline constexpr int kMaxShift = 8;

// v' = v +- ToFixed(f), and what the next sub-layer reads, y = ToFloat(v'), in one pass. Without v,
// v' = ToFixed(f): a stream begins; without f, v' = v: only y is made. `v_out` may be `v`. Traffic:
// 4*N*C bytes for each of v, v_out, N*C elements for each of f, y.
struct FixedAddParams {
  const int32_t* v = nullptr;   // (N, C), or null
  const void* f = nullptr;      // (N, C), dtype, or null; not both
  int32_t* v_out = nullptr;     // (N, C), or null
  void* y = nullptr;            // (N, C), y_dtype, or null; not both
  int32_t* overflow = nullptr;  // (1) becomes 1 where it happens, else is left; null: not wanted
  int64_t N = 0, C = 0;
  int64_t v_stride = 0, f_stride = 0, v_out_stride = 0, y_stride = 0;
  DType dtype = DType::kF32, y_dtype = DType::kF32;
  int q = kFixedBits;  // In [0, 30].
  bool subtract = false;
};
Error FixedAdd(const FixedAddParams& p, Stream stream);

// Bytes of the K bits of each of C elements: bit planes of eight elements after one another, byte
// c / 8 * K + j holding bit j of elements c .. c + 7.
inline constexpr int64_t SideBytes(int64_t C, int K) { return (C + 7) / 8 * K; }

// Forward: v_out = floor(v / 2^shift) + ToFixed(f), side = the low bits of v. With `inverse`: from
// v = what forward wrote, and side, v_out = what forward read. `v_out` may be `v`. Traffic: 8*N*C
// bytes, N*C elements of f, shift / 8 * N*C bytes of side.
struct FixedShiftAddParams {
  const int32_t* v = nullptr;   // (N, C)
  const void* f = nullptr;      // (N, C), dtype
  int32_t* v_out = nullptr;     // (N, C)
  uint8_t* side = nullptr;      // (N, SideBytes(C, shift)): written, with `inverse` read
  int32_t* overflow = nullptr;  // (1) As above.
  int64_t N = 0, C = 0;
  int64_t v_stride = 0, f_stride = 0, v_out_stride = 0, side_stride = 0;
  DType dtype = DType::kF32;
  int q = kFixedBits;
  int shift = 1;  // K, in [1, kMaxShift].
  bool inverse = false;
};
Error FixedShiftAdd(const FixedShiftAddParams& p, Stream stream);

namespace fixed_point {

// 2^q, -126 <= q <= 127.
SNUG_HOST_DEVICE inline float PowerOfTwo(int q) {
  return FloatOfBits(static_cast<uint32_t>(q + 127) << 23);
}

// v + kRoom has its sign bit set where v is outside of [-2^30, 2^30).
inline constexpr uint32_t kRoom = 1u << 30;

}  // namespace fixed_point
}  // namespace snug::kernels

#endif  // KERNELS_REVERSIBLE_H_
