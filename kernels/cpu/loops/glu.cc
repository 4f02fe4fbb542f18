// Inner loops of the gated linear units.
#include "kernels/glu.h"

#include "kernels/cpu/loops/activations.h"
#include "kernels/cpu/loops/codes.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/pairs.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// All operands of a vector are read before one is written: results may lie over any of them.
template <typename T, typename H>
void ForwardTyped(const GluForwardParams& p, Range rows) {
  const bool in_place = p.p == p.g || p.p == p.u;
  const Output out(in_place ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* g = RowOf<T>(p.g, i, p.g_stride);
    const T* u = RowOf<T>(p.u, i, p.u_stride);
    T* y = RowOf<T>(p.p, i, p.p_stride);
    if (p.a == nullptr && p.codes == nullptr) {
      Each(
          out, p.C, y, [](F32x16 v, F32x16 up) SNUG_LAMBDA { return H::Value(v) * up; }, g, u);
      continue;
    }
    T* a = p.a == nullptr ? nullptr : RowOf<T>(p.a, i, p.a_stride);
    uint8_t* codes = p.codes == nullptr ? nullptr : p.codes + i * p.code_stride;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gate = Load(g + c, part), up = Load(u + c, part);
      const F32x16 active = H::Value(gate);
      if (codes != nullptr) StoreCodes<2>(codes, c, TwoBitCodes(gate, p.two_bit), part);
      if (a != nullptr) Store(a + c, active, part);
      out.Put(y + c, active * up, part);
    });
  }
}

// h(g) and h'(g) of a row from g.
template <typename T, typename H>
struct FromGate {
  const T* g;
  FromGate(const GluBackwardParams& p, int64_t i) : g(RowOf<T>(p.g, i, p.g_stride)) {}
  template <typename Extent>
  SNUG_INLINE ValueAndSlope At(int64_t c, Extent extent) const {
    return H::Of(Load(g + c, extent));
  }
};

// From what forward left in its place; h(g) only where it is there.
template <typename T>
struct FromCodes {
  const uint8_t* codes;
  const T* a;
  const float* slope;
  FromCodes(const GluBackwardParams& p, int64_t i)
      : codes(p.codes + i * p.code_stride),
        a(p.du == nullptr ? nullptr : RowOf<T>(p.a, i, p.a_stride)),
        slope(p.two_bit.slope) {}
  template <typename Extent>
  SNUG_INLINE ValueAndSlope At(int64_t c, Extent extent) const {
    return {a == nullptr ? F32x16{} : Load(a + c, extent),
            SlopesOf<2>(LoadCodes<2>(codes, c, extent), slope)};
  }
};

template <typename T, typename Source, bool kDg, bool kDu>
void BackwardTyped(const GluBackwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dp = RowOf<T>(p.dp, i, p.dp_stride);
    const Source source(p, i);
    const T* u = kDg ? RowOf<T>(p.u, i, p.u_stride) : nullptr;
    T* dg = kDg ? RowOf<T>(p.dg, i, p.dg_stride) : nullptr;
    T* du = kDu ? RowOf<T>(p.du, i, p.du_stride) : nullptr;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gradient = Load(dp + c, part);
      const ValueAndSlope h = source.At(c, part);
      F32x16 d_gate{};
      if constexpr (kDg) d_gate = gradient * Load(u + c, part) * h.slope;
      if constexpr (kDu) Store(du + c, gradient * h.value, part);
      if constexpr (kDg) Store(dg + c, d_gate, part);
    });
  }
}

template <typename T, typename Source>
void BackwardWanted(const GluBackwardParams& p, Range rows) {
  if (p.dg != nullptr && p.du != nullptr) {
    BackwardTyped<T, Source, true, true>(p, rows);
  } else if (p.dg != nullptr) {
    BackwardTyped<T, Source, true, false>(p, rows);
  } else if (p.du != nullptr) {
    BackwardTyped<T, Source, false, true>(p, rows);
  }
}

}  // namespace

void GluForwardRows(const GluForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByActivation(p.gate, [&](auto h) { ForwardTyped<decltype(t), decltype(h)>(p, rows); });
  });
}

void GluBackwardRows(const GluBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    if (p.codes != nullptr) return BackwardWanted<T, FromCodes<T>>(p, rows);
    ByActivation(p.gate, [&](auto h) { BackwardWanted<T, FromGate<T, decltype(h)>>(p, rows); });
  });
}

}  // namespace snug::kernels::SNUG_ISA
