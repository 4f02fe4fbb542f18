// Reversible streams on CUDA, element by element.
#include "kernels/reversible.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

struct Word {
  uint32_t value;
  bool overflow;
};

// rint(f * scale), the nearest bound beyond 32 bits, NaN as 0.
__device__ inline Word ToFixed(float f, float scale) {
  const float x = f * scale;
  if (fabsf(x) < 0x1p31f) return {static_cast<uint32_t>(__float2int_rn(x)), false};
  const uint32_t bound = x < 0.0f ? 0x80000000u : 0x7fffffffu;
  return {x == x ? bound : 0u, true};
}

__device__ inline bool LeavesRoom(uint32_t v) { return (v + fixed_point::kRoom) >> 31 != 0; }

// All that find it write the same: the order does not matter.
__device__ inline void Tell(bool overflow, int32_t* flag) {
  if (overflow && flag != nullptr) atomicExch(flag, 1);
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock) FixedAddKernel(FixedAddParams p, ElementGrid grid) {
  const float scale = fixed_point::PowerOfTwo(p.q), step = fixed_point::PowerOfTwo(-p.q);
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const int64_t c = pack * V;
    Pack<int32_t, V> v = {};
    Floats<V> f = {};
    if (p.v != nullptr) v = LoadPack<V>(p.v + row * p.v_stride + c);
    if (p.f != nullptr) f = Load<V>(static_cast<const T*>(p.f) + row * p.f_stride + c);
    bool overflow = false;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const Word added = ToFixed(f.at[i], scale);
      const uint32_t before = static_cast<uint32_t>(v.at[i]);
      const uint32_t sum = p.subtract ? before - added.value : before + added.value;
      overflow |= added.overflow || LeavesRoom(sum);
      v.at[i] = static_cast<int32_t>(sum);
    }
    Tell(overflow, p.overflow);
    if (p.v_out != nullptr) StorePack(p.v_out + row * p.v_out_stride + c, v);
    if (p.y == nullptr) return;
    Floats<V> y;
#pragma unroll
    for (int i = 0; i < V; ++i) y.at[i] = static_cast<float>(v.at[i]) * step;
    const int64_t at = row * p.y_stride + c;
    if (p.y_dtype == DType::kF32) Store(static_cast<float*>(p.y) + at, y);
    if (p.y_dtype == DType::kBF16) Store(static_cast<bf16*>(p.y) + at, y);
    if (p.y_dtype == DType::kF16) Store(static_cast<f16*>(p.y) + at, y);
  });
}

// Eight elements a thread, whose planes are whole bytes: wide accesses where all have eight.
constexpr int kEight = 8;

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    FixedShiftAddKernel(FixedShiftAddParams p, ElementGrid grid) {
  const float scale = fixed_point::PowerOfTwo(p.q);
  ForElements(grid, [&](int64_t row, int64_t group) {
    const int64_t c = group * kEight;
    const int count = kWide ? kEight : static_cast<int>(min(p.C - c, int64_t{kEight}));
    const T* f_row = static_cast<const T*>(p.f) + row * p.f_stride + c;
    const int32_t* v_row = p.v + row * p.v_stride + c;
    int32_t* out = p.v_out + row * p.v_out_stride + c;
    uint8_t* side = p.side + row * p.side_stride + group * p.shift;
    Pack<int32_t, kEight> v = {};
    Floats<kEight> f = {};
    if (kWide) {
      v = LoadPack<kEight>(v_row);
      f = Load<kEight>(f_row);
    } else {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if (i < count) v.at[i] = v_row[i];
        if (i < count) f.at[i] = Widen(f_row[i]);
      }
    }
    uint64_t planes = 0;  // Byte j: plane j.
    for (int j = 0; j < p.shift && p.inverse; ++j) planes |= uint64_t{side[j]} << (8 * j);
    bool overflow = false;
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const Word added = ToFixed(f.at[i], scale);
      uint32_t result = static_cast<uint32_t>(v.at[i]);
      if (p.inverse) {
        result = (result - added.value) << p.shift;
        for (int j = 0; j < p.shift; ++j) {
          result |= static_cast<uint32_t>(planes >> (8 * j + i) & 1) << j;
        }
      } else {
        for (int j = 0; j < p.shift; ++j) planes |= uint64_t{result >> j & 1u} << (8 * j + i);
        result = static_cast<uint32_t>(v.at[i] >> p.shift) + added.value;
      }
      overflow |= added.overflow || LeavesRoom(result);
      v.at[i] = static_cast<int32_t>(result);
    }
    Tell(overflow, p.overflow);
    for (int j = 0; j < p.shift && !p.inverse; ++j) side[j] = static_cast<uint8_t>(planes >> 8 * j);
    if (kWide) {
      StorePack(out, v);
    } else {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if (i < count) out[i] = v.at[i];
      }
    }
  });
}

}  // namespace

Error FixedAdd(const FixedAddParams& p, Stream stream) {
  return ByPacks(p.dtype, p.C,
                 {{p.v, p.v_stride, 4},
                  {p.f, p.f_stride, SizeOf(p.dtype)},
                  {p.v_out, p.v_out_stride, 4},
                  {p.y, p.y_stride, SizeOf(p.y_dtype)}},
                 [&](auto t, auto v) {
                   constexpr int V = decltype(v)::value;
                   const ElementGrid grid = ElementGridOf(p.N, p.C / V);
                   return Launch(FixedAddKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
                 });
}

Error FixedShiftAdd(const FixedShiftAddParams& p, Stream stream) {
  const bool wide = Divides({p.v, p.v_stride, 4}, p.C, kEight) &&
                    Divides({p.f, p.f_stride, SizeOf(p.dtype)}, p.C, kEight) &&
                    Divides({p.v_out, p.v_out_stride, 4}, p.C, kEight);
  const ElementGrid grid = ElementGridOf(p.N, Ceil(p.C, kEight));
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(wide ? FixedShiftAddKernel<T, true> : FixedShiftAddKernel<T, false>,
                  {grid.blocks}, stream, p, grid);
  });
}

}  // namespace snug::kernels::cuda
