// Code for each number type: rounding to it, reading an index, and from a run-time type to a
// template argument. (The loops of the CPU have their own, internal to each instruction set.)
#ifndef KERNELS_BY_TYPE_H_
#define KERNELS_BY_TYPE_H_

#include "kernels/types.h"

namespace snug::kernels {

template <typename T>
SNUG_HOST_DEVICE inline T Narrow(float value);
template <>
SNUG_HOST_DEVICE inline float Narrow<float>(float value) {
  return value;
}
template <>
SNUG_HOST_DEVICE inline bf16 Narrow<bf16>(float value) {
  return ToBf16(value);
}
template <>
SNUG_HOST_DEVICE inline f16 Narrow<f16>(float value) {
  return ToF16(value);
}

SNUG_HOST_DEVICE inline int64_t IndexAt(const void* index, IndexType type, int64_t i) {
  return type == IndexType::kI32 ? static_cast<const int32_t*>(index)[i]
                                 : static_cast<const int64_t*>(index)[i];
}

// body(float{}), body(bf16{}) or body(f16{}).
template <typename Body>
inline auto ByType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBF16:
      return body(bf16{});
    case DType::kF16:
      return body(f16{});
    case DType::kF32:
      break;
  }
  return body(float{});
}

}  // namespace snug::kernels

#endif  // KERNELS_BY_TYPE_H_
