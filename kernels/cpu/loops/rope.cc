// Inner loops of the rotary embedding.
#include "kernels/rope.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Up to it the product of the reduction's whole number with kHalfPiHigh is exact.
constexpr double kLargestAngle = 1e6;

// cos and sin of angles up to kLargestAngle, in fp64: the reduction modulo pi / 2 is Cody &
// Waite's, in two parts, the polynomials are fdlibm's (k_sin.c, k_cos.c). Written lane by lane
// without branches, for the compiler to make vectors of.
SNUG_INLINE void Turn(double angle, float scale, float& cos_out, float& sin_out) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1, kRound = 0x1.8p52;
  constexpr double kHalfPiHigh = 1.57079632673412561417e+00,
                   kHalfPiLow = 6.07710050650619224932e-11;
  const double shifted = angle * kTwoOverPi + kRound, n = shifted - kRound;
  const double r = (angle - n * kHalfPiHigh) - n * kHalfPiLow, z = r * r;
  const double sin_tail =
      -1.66666666666666324348e-01 +
      z * (8.33333333332248946124e-03 +
           z * (-1.98412698298579493134e-04 +
                z * (2.75573137070700676789e-06 + z * -2.50507602534068634195e-08)));
  const double cos_tail = 4.16666666666666019037e-02 +
                          z * (-1.38888888888741095749e-03 +
                               z * (2.48015872894767294178e-05 + z * -2.75573143513906633035e-07));
  const auto sin = __builtin_bit_cast(uint64_t, r + r * z * sin_tail);
  const auto cos = __builtin_bit_cast(uint64_t, (1.0 - 0.5 * z) + z * z * cos_tail);
  const auto quarters = __builtin_bit_cast(uint64_t, shifted);  // In the lowest bits.
  const uint64_t swap = -(quarters & 1);
  const uint64_t x = (cos & ~swap) | (sin & swap), y = (sin & ~swap) | (cos & swap);
  const uint64_t x_sign = (quarters + 1) << 62 & uint64_t{1} << 63;
  const uint64_t y_sign = quarters << 62 & uint64_t{1} << 63;
  cos_out = static_cast<float>(__builtin_bit_cast(double, x ^ x_sign)) * scale;
  sin_out = static_cast<float>(__builtin_bit_cast(double, y ^ y_sign)) * scale;
}

void TableRow(const RopeTableParams& p, int64_t i, float position, float largest) {
  const int64_t half = p.D / 2;
  const float* inv_freq = p.inv_freq;
  float* __restrict cos = p.cos + i * half;
  float* __restrict sin = p.sin + i * half;
  const float scale = p.scale;
  if (!(position * largest < kLargestAngle)) {  // NaN, too.
    for (int64_t j = 0; j < half; ++j) {
      const float angle = position * inv_freq[j];
      cos[j] = __builtin_cosf(angle) * scale;
      sin[j] = __builtin_sinf(angle) * scale;
    }
    return;
  }
  for (int64_t j = 0; j < half; ++j) {
    const float angle = position * inv_freq[j];  // Rounded to fp32, as transformers has it.
    Turn(static_cast<double>(angle), scale, cos[j], sin[j]);
  }
}

template <typename T, bool kBackward>
void RopeTyped(const RopeParams& p, Range rows) {
  const int64_t turned = p.R == 0 ? p.D : p.R, half = turned / 2;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float* cos = p.cos + i * half;
    const float* sin = p.sin + i * half;
    for (int64_t head = 0; head < p.heads; ++head) {
      const T* x = RowOf<T>(p.x, i, p.x_stride) + head * p.D;
      T* y = RowOf<T>(p.y, i, p.y_stride) + head * p.D;
      ForVectors(half, [&](int64_t j, auto part) SNUG_LAMBDA {
        const F32x16 a = Load(x + j, part), b = Load(x + half + j, part);
        const F32x16 c = Load(cos + j, part);
        const F32x16 s = kBackward ? -Load(sin + j, part) : Load(sin + j, part);
        Store(y + j, a * c - b * s, part);
        Store(y + half + j, b * c + a * s, part);
      });
      if (y != x) memcpy(y + turned, x + turned, (p.D - turned) * sizeof(T));
    }
  }
}

}  // namespace

void RopeTableRows(const RopeTableParams& p, Range rows) {
  float largest = 0.0f;
  for (int64_t j = 0; j < p.D / 2; ++j) {
    const float magnitude = p.inv_freq[j] < 0.0f ? -p.inv_freq[j] : p.inv_freq[j];
    if (!(magnitude <= largest)) largest = magnitude;
  }
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t position = IndexAt(p.positions, p.position_type, i);
    TableRow(p, i, static_cast<float>(position), largest);
  }
}

void RopeRows(const RopeParams& p, bool backward, Range rows) {
  ByType(p.dtype, [&](auto t) {
    if (backward) {
      RopeTyped<decltype(t), true>(p, rows);
    } else {
      RopeTyped<decltype(t), false>(p, rows);
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
