// From run-time types to template arguments, and from row numbers to pointers.
#ifndef KERNELS_CPU_LOOPS_DISPATCH_H_
#define KERNELS_CPU_LOOPS_DISPATCH_H_

#include <cstdint>

#include "kernels/cpu/loops/vector.h"
#include "kernels/types.h"

namespace snug::kernels::SNUG_ISA {

// body(float{}), body(bf16{}) or body(f16{}).
template <typename Body>
static inline void ByType(DType dtype, Body body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kBF16:
      return body(bf16{});
    case DType::kF16:
      return body(f16{});
  }
}

// Elements from x[i] on, of a type that is known when running: for what is small and read often.
template <typename Extent>
static SNUG_INLINE F32x16 LoadAny(const void* x, DType dtype, int64_t i, Extent extent) {
  if (dtype == DType::kF32) return Load(static_cast<const float*>(x) + i, extent);
  if (dtype == DType::kBF16) return Load(static_cast<const bf16*>(x) + i, extent);
  return Load(static_cast<const f16*>(x) + i, extent);
}

// Of indices of either type.
static SNUG_INLINE int64_t IndexAt(const void* index, IndexType type, int64_t i) {
  return type == IndexType::kI32 ? static_cast<const int32_t*>(index)[i]
                                 : static_cast<const int64_t*>(index)[i];
}

template <typename T>
static inline const T* RowOf(const void* x, int64_t row, int64_t stride) {
  return static_cast<const T*>(x) + row * stride;
}
template <typename T>
static inline T* RowOf(void* x, int64_t row, int64_t stride) {
  return static_cast<T*>(x) + row * stride;
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_DISPATCH_H_
