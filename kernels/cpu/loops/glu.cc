// Inner loops of the gated linear units.
#include "kernels/glu.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

struct Sigmoid {
  F32x16 s;      // 1 / (1 + exp(-z))
  F32x16 minus;  // 1 - s, without cancellation
};

// From exp(-|z|), which cannot overflow.
SNUG_INLINE Sigmoid SigmoidOf(F32x16 z) {
  const F32x16 t = Exp(reinterpret_cast<F32x16>(reinterpret_cast<I32x16>(z) | ~0x7fffffff));
  const F32x16 large = 1.0f / (1.0f + t);
  const F32x16 small = t * large;
  const I32x16 negative = SignMask(z);
  return {Select(negative, small, large), Select(negative, large, small)};
}

// What the sigmoid is taken of, and g times its slope.
struct Silu {
  static SNUG_INLINE F32x16 Argument(F32x16 g) { return g; }
  static SNUG_INLINE F32x16 GateTimesSlope(F32x16 g) { return g; }
};

struct GeluTanh {
  static constexpr float kTwice = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;
  static SNUG_INLINE F32x16 Argument(F32x16 g) { return kTwice * (g + kCubic * g * g * g); }
  // Far out the sigmoid has saturated and only an infinity must not arise to meet its 0.
  static SNUG_INLINE F32x16 GateTimesSlope(F32x16 g) {
    constexpr float kFar = 1e6f;
    const F32x16 square = g * g;
    const F32x16 near = Select(SignMask(square - kFar), square, Splat(kFar));
    return kTwice * g * (1.0f + 3.0f * kCubic * near);
  }
};

template <typename T, typename Gate>
void ForwardTyped(const GluForwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* g = RowOf<T>(p.g, i, p.g_stride);
    const T* u = RowOf<T>(p.u, i, p.u_stride);
    T* out = RowOf<T>(p.p, i, p.p_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gate = Load(g + c, part);
      Store(out + c, gate * SigmoidOf(Gate::Argument(gate)).s * Load(u + c, part), part);
    });
  }
}

// All operands of a vector are read before one is written: results may lie over any of them.
template <typename T, typename Gate, bool kDg, bool kDu>
void BackwardTyped(const GluBackwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dp = RowOf<T>(p.dp, i, p.dp_stride);
    const T* g = RowOf<T>(p.g, i, p.g_stride);
    const T* u = kDg ? RowOf<T>(p.u, i, p.u_stride) : nullptr;
    T* dg = kDg ? RowOf<T>(p.dg, i, p.dg_stride) : nullptr;
    T* du = kDu ? RowOf<T>(p.du, i, p.du_stride) : nullptr;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gate = Load(g + c, part), gradient = Load(dp + c, part);
      const Sigmoid sigmoid = SigmoidOf(Gate::Argument(gate));
      F32x16 d_gate{};
      if constexpr (kDg) {
        d_gate = gradient * Load(u + c, part) * sigmoid.s *
                 (1.0f + Gate::GateTimesSlope(gate) * sigmoid.minus);
      }
      if constexpr (kDu) Store(du + c, gradient * (gate * sigmoid.s), part);
      if constexpr (kDg) Store(dg + c, d_gate, part);
    });
  }
}

template <typename T, typename Gate>
void BackwardWanted(const GluBackwardParams& p, Range rows) {
  if (p.dg != nullptr && p.du != nullptr) {
    BackwardTyped<T, Gate, true, true>(p, rows);
  } else if (p.dg != nullptr) {
    BackwardTyped<T, Gate, true, false>(p, rows);
  } else if (p.du != nullptr) {
    BackwardTyped<T, Gate, false, true>(p, rows);
  }
}

// body(Silu{}) or body(GeluTanh{}).
template <typename Body>
void ByGate(Gate gate, Body body) {
  if (gate == Gate::kSilu) {
    body(Silu{});
  } else {
    body(GeluTanh{});
  }
}

}  // namespace

void GluForwardRows(const GluForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByGate(p.gate, [&](auto gate) { ForwardTyped<decltype(t), decltype(gate)>(p, rows); });
  });
}

void GluBackwardRows(const GluBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByGate(p.gate, [&](auto gate) { BackwardWanted<decltype(t), decltype(gate)>(p, rows); });
  });
}

}  // namespace snug::kernels::SNUG_ISA
