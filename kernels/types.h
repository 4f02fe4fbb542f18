// What all kernels share: number types, errors, the stream.
//
// Rules that hold for every op of this folder, so that its header need not repeat them:
// - Tensors are rows of C contiguous elements, `..._stride` elements apart (>= C). Pointers need
//   the alignment of their element only. All sizes, strides and indices are 64-bit.
// - N == 0 rows is valid and does nothing. Arguments are checked before anything is written: on an
//   error, nothing was written. What lies in a GPU's memory (indices, ids, positions) is not looked
//   at before a launch: there the caller answers for its values.
// - Two operands may be the same tensor (same pointer, same stride) where the header allows it.
//   They never overlap in part; that is not checked.
// - Results are the same bits from run to run on one device, for any number of threads, and however
//   rows are divided among calls, so that a recompute gives what the first run gave. Headers name
//   the exceptions. Arithmetic and statistics are fp32 (sums over many terms: fp64) for bf16 as
//   well; a bf16 or fp16 result is rounded once. NaN and infinity go through, they are never
//   clamped (on CUDA a NaN may have other bits than on the CPU).
// - No op allocates memory.
#ifndef KERNELS_TYPES_H_
#define KERNELS_TYPES_H_

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SNUG_HOST_DEVICE __host__ __device__
#else
#define SNUG_HOST_DEVICE
#endif

namespace snug::kernels {

// Where an op runs. nullptr: the CPU; it runs before the call returns, on the threads of OpenMP's
// default team. Anything else is a CUDA stream; a build without CUDA refuses it with kNoDevice.
using Stream = struct StreamHandle*;

enum class DType : uint8_t { kF32, kBF16, kF16 };
enum class IndexType : uint8_t { kI32, kI64 };

inline constexpr int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

enum class ErrorCode : uint8_t {
  kOk,
  kNullPointer,
  kBadShape,      // Negative, zero where it must not be, odd where it must be even.
  kBadStride,     // Shorter than a row.
  kBadDType,      // Not a type of this op.
  kBadIndex,      // An index, id or label outside its range, or indices out of order.
  kBadValue,      // A scalar outside its range.
  kNoDevice,      // A CUDA stream, in a build without CUDA.
  kLaunchFailed,  // The driver did not take the launch; nothing ran.
};
const char* ToString(ErrorCode code);  // "null pointer", "bad stride", ...

// What was wrong, and with which parameter: {kBadStride, "x_stride"}.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kOk;
  const char* parameter = "";
  constexpr bool ok() const { return code == ErrorCode::kOk; }
};

// bfloat16: the upper half of an fp32. fp16: IEEE 754's binary16.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

SNUG_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
SNUG_HOST_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

SNUG_HOST_DEVICE inline float ToFloat(float value) { return value; }
SNUG_HOST_DEVICE inline float ToFloat(bf16 value) {
  return FloatOfBits(static_cast<uint32_t>(value.bits) << 16);
}
SNUG_HOST_DEVICE inline float ToFloat(f16 value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16, magnitude = value.bits & 0x7fffu;
  if (magnitude < 0x400u) {  // Subnormal: a number of steps of 2^-24.
    return FloatOfBits(BitsOf(static_cast<float>(magnitude) * 0x1p-24f) | sign);
  }
  const uint32_t rebias = magnitude < 0x7c00u ? 112u << 23 : 224u << 23;
  return FloatOfBits(((magnitude << 13) + rebias) | sign);
}

// To nearest, ties to even; any NaN becomes 0x7fc0. The same bits as c10::BFloat16.
SNUG_HOST_DEVICE inline bf16 ToBf16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16{0x7fc0};
  return bf16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// To nearest, ties to even, infinity from 65520 on; any NaN becomes 0x7e00 of its sign. The same
// bits as c10::Half.
SNUG_HOST_DEVICE inline f16 ToF16(float value) {
  const uint32_t sign = BitsOf(value) >> 16 & 0x8000u, magnitude = BitsOf(value) & 0x7fffffffu;
  uint32_t half;
  if (magnitude >= 0x47800000u) {  // 2^16 and beyond, infinity, NaN.
    half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // Subnormal: adding 1/2 rounds to a step of 2^-24.
    half = BitsOf(FloatOfBits(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  }
  return f16{static_cast<uint16_t>(half | sign)};
}

}  // namespace snug::kernels

#endif  // KERNELS_TYPES_H_
