// Inner loops that dequantise frozen weights.
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/nf4_levels.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Elements [e, e + n) of a weight, all in one block of 64, as fp32.
SNUG_INLINE void Nf4Values(const Nf4Weight& w, int64_t e, int64_t n, float* values) {
  const auto* codes = static_cast<const uint8_t*>(w.codes);
  const float absmax = Nf4Absmax(w, kDynamicMap, e / kNf4Block);
  float scaled[16];  // The block's levels: each product is rounded as the definition has it.
  for (int level = 0; level < 16; ++level) scaled[level] = kNf4Levels.at[level] * absmax;
  int64_t i = 0;
  if (e % 2 == 1 && n > 0) values[i++] = scaled[codes[e / 2] & 15];
  for (; i + 2 <= n; i += 2) {
    const uint8_t pair = codes[(e + i) / 2];
    values[i] = scaled[pair >> 4];
    values[i + 1] = scaled[pair & 15];
  }
  if (i < n) values[i] = scaled[codes[(e + i) / 2] >> 4];
}

template <typename T>
void Nf4Row(const FrozenTile& t, int64_t n, T* to) {
  const int64_t end = n * t.K + t.columns.end;
  for (int64_t e = n * t.K + t.columns.begin; e < end;) {
    const int64_t block_end = (e / kNf4Block + 1) * kNf4Block;
    const int64_t count = (block_end < end ? block_end : end) - e;
    float values[kNf4Block] = {};
    Nf4Values(t.W.nf4, e, count, values);
    ForVectors(count, [&](int64_t c, auto part)
                          SNUG_LAMBDA { Store(to + c, Load(values + c, part), part); });
    to += count;
    e += count;
  }
}

template <typename T>
void Int8Row(const FrozenTile& t, int64_t n, T* to) {
  const int8_t* codes = t.W.int8.codes + n * t.W.int8.codes_stride + t.columns.begin;
  const float absmax = t.W.int8.absmax[n];
  const int64_t count = t.columns.end - t.columns.begin;
  for (int64_t c = 0; c < count; c += kLanes) {
    const int64_t some = count - c < kLanes ? count - c : kLanes;
    float values[kLanes] = {};
    for (int64_t k = 0; k < some; ++k) values[k] = Int8Value(codes[c + k], absmax);
    Store(to + c, Load(values, Whole{}), Part{some});
  }
}

}  // namespace

void DequantizeTile(const FrozenTile& t) {
  ByType(t.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t n = t.rows.begin; n < t.rows.end; ++n) {
      T* to = RowOf<T>(t.to, n - t.rows.begin, t.stride);
      if (t.W.kind == FrozenKind::kNf4) {
        Nf4Row(t, n, to);
      } else {
        Int8Row(t, n, to);
      }
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
