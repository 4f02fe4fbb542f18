// Rotary embedding on CUDA: a thread turns a pack of pairs, or copies a pack beyond the part that
// is turned.
#include "kernels/rope.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

struct Turn {
  float cos, sin;
};

// Within 0.51 units of fp32 for angles up to 2^52: quarter turns are taken off in fp64, what is
// left goes into Taylor's series. (The library's reduction of large angles needs local memory.)
__device__ inline Turn TurnOf(float angle) {
  constexpr double kQuartersPerUnit = 0x1.45f306dc9c883p-1;  // 2 / pi
  constexpr double kQuarterHigh = 0x1.921fb54442d18p+0, kQuarterLow = 0x1.1a62633145c07p-54;
  const double quarters = rint(static_cast<double>(angle) * kQuartersPerUnit);
  const double x =
      fma(-quarters, kQuarterLow, fma(-quarters, kQuarterHigh, static_cast<double>(angle)));
  const double s = x * x;
  const double sin =
      x + x * s *
              (-1.0 / 6 +
               s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880 - s * (1.0 / 39916800)))));
  const double cos =
      1.0 + s * (-1.0 / 2 +
                 s * (1.0 / 24 +
                      s * (-1.0 / 720 + s * (1.0 / 40320 + s * (-1.0 / 3628800 + s / 479001600)))));
  const auto quarter = static_cast<unsigned>(static_cast<long long>(quarters)) & 3u;
  const double swapped_cos = quarter & 1u ? sin : cos, swapped_sin = quarter & 1u ? cos : sin;
  return {static_cast<float>(quarter == 1 || quarter == 2 ? -swapped_cos : swapped_cos),
          static_cast<float>(quarter >= 2 ? -swapped_sin : swapped_sin)};
}

__global__ void __launch_bounds__(kMaxBlock) RopeTableKernel(RopeTableParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t j) {
    const auto position = static_cast<float>(IndexAt(p.positions, p.position_type, i));
    const Turn turn = TurnOf(position * p.inv_freq[j]);
    p.cos[i * grid.packs + j] = turn.cos * p.scale;
    p.sin[i * grid.packs + j] = turn.sin * p.scale;
  });
}

// What a head is made of, in packs.
struct HeadPacks {
  int64_t pairs = 0, copies = 0;
  SNUG_HOST_DEVICE int64_t all() const { return pairs + copies; }
};

// direction 1: forward; -1: backward.
template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    RopeKernel(RopeParams p, float direction, HeadPacks packs, ElementGrid grid) {
  const int64_t half = packs.pairs * V;
  ForElements(grid, [&](int64_t i, int64_t pack) {
    const int64_t head = pack / packs.all(), k = pack - head * packs.all();
    const T* x = static_cast<const T*>(p.x) + i * p.x_stride + head * p.D;
    T* y = static_cast<T*>(p.y) + i * p.y_stride + head * p.D;
    if (k >= packs.pairs) {
      const int64_t c = 2 * half + (k - packs.pairs) * V;
      StorePack(y + c, LoadPack<V>(x + c));
      return;
    }
    const int64_t j = k * V;
    const Floats<V> a = Load<V>(x + j), b = Load<V>(x + half + j);
    const Floats<V> cos = Load<V>(p.cos + i * half + j);
    const Floats<V> sin =
        Each([&](float f) { return f * direction; }, Load<V>(p.sin + i * half + j));
    Store(y + j, Each([](float a_, float b_, float c, float s) { return a_ * c - b_ * s; }, a, b,
                      cos, sin));
    Store(y + half + j, Each([](float a_, float b_, float c, float s) { return b_ * c + a_ * s; },
                             a, b, cos, sin));
  });
}

Error Rotate(const RopeParams& p, float direction, Stream stream) {
  const int64_t turned = p.R == 0 ? p.D : p.R, half = turned / 2;
  const int64_t copied = p.x == p.y ? 0 : p.D - turned;
  const int64_t bytes = SizeOf(p.dtype);
  // Heads are rows within rows: their stride counts as well.
  return ByPacks(p.dtype, half,
                 {{p.x, p.x_stride, bytes},
                  {p.x, p.D, bytes},
                  {p.y, p.y_stride, bytes},
                  {p.cos, half, sizeof(float)},
                  {p.sin, half, sizeof(float)}},
                 [&](auto t, auto v) {
                   constexpr int V = decltype(v)::value;
                   const HeadPacks packs = {half / V, copied / V};
                   const ElementGrid grid = ElementGridOf(p.N, p.heads * packs.all());
                   return Launch(RopeKernel<decltype(t), V>, {grid.blocks}, stream, p, direction,
                                 packs, grid);
                 });
}

}  // namespace

Error RopeTable(const RopeTableParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, p.D / 2);
  return Launch(RopeTableKernel, {grid.blocks}, stream, p, grid);
}

Error RopeForward(const RopeParams& p, Stream stream) { return Rotate(p, 1.0f, stream); }
Error RopeBackward(const RopeParams& p, Stream stream) { return Rotate(p, -1.0f, stream); }

}  // namespace snug::kernels::cuda
