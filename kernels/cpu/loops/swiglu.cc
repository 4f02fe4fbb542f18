// Inner loops of SwiGLU.
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/entries.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

struct Sigmoid {
  F32x16 s;      // 1 / (1 + exp(-g))
  F32x16 minus;  // 1 - s, without cancellation
};

// From exp(-|g|), which cannot overflow.
SNUG_INLINE Sigmoid SigmoidOf(F32x16 g) {
  const F32x16 t = Exp(reinterpret_cast<F32x16>(reinterpret_cast<I32x16>(g) | ~0x7fffffff));
  const F32x16 large = 1.0f / (1.0f + t);
  const F32x16 small = t * large;
  const I32x16 negative = SignMask(g);
  return {Select(negative, small, large), Select(negative, large, small)};
}

template <typename T>
void ForwardTyped(const SwiGluForwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* g = RowOf<T>(p.g, i, p.g_stride);
    const T* u = RowOf<T>(p.u, i, p.u_stride);
    T* out = RowOf<T>(p.p, i, p.p_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gate = Load(g + c, part);
      Store(out + c, gate * SigmoidOf(gate).s * Load(u + c, part), part);
    });
  }
}

// All operands of a vector are read before one is written: results may lie over any of them.
template <typename T, bool kDg, bool kDu>
void BackwardTyped(const SwiGluBackwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dp = RowOf<T>(p.dp, i, p.dp_stride);
    const T* g = RowOf<T>(p.g, i, p.g_stride);
    const T* u = kDg ? RowOf<T>(p.u, i, p.u_stride) : nullptr;
    T* dg = kDg ? RowOf<T>(p.dg, i, p.dg_stride) : nullptr;
    T* du = kDu ? RowOf<T>(p.du, i, p.du_stride) : nullptr;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gate = Load(g + c, part), gradient = Load(dp + c, part);
      const Sigmoid sigmoid = SigmoidOf(gate);
      F32x16 d_gate{};
      if constexpr (kDg) {
        d_gate = gradient * Load(u + c, part) * sigmoid.s * (1.0f + gate * sigmoid.minus);
      }
      if constexpr (kDu) Store(du + c, gradient * (gate * sigmoid.s), part);
      if constexpr (kDg) Store(dg + c, d_gate, part);
    });
  }
}

}  // namespace

void SwiGluForwardRows(const SwiGluForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { ForwardTyped<decltype(t)>(p, rows); });
}

void SwiGluBackwardRows(const SwiGluBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    if (p.dg != nullptr && p.du != nullptr) {
      BackwardTyped<T, true, true>(p, rows);
    } else if (p.dg != nullptr) {
      BackwardTyped<T, true, false>(p, rows);
    } else if (p.du != nullptr) {
      BackwardTyped<T, false, true>(p, rows);
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
