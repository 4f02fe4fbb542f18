// Inner loops of the activations of one operand.
#include "kernels/activation.h"

#include "kernels/cpu/loops/activations.h"
#include "kernels/cpu/loops/codes.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/pairs.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T, typename H>
void ForwardTyped(const ActivationForwardParams& p, Range rows) {
  const Output out(p.y == p.x ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = RowOf<T>(p.x, i, p.x_stride);
    T* y = RowOf<T>(p.y, i, p.y_stride);
    if (p.codes == nullptr && p.mask == nullptr) {
      Each(
          out, p.C, y, [](F32x16 v) SNUG_LAMBDA { return H::Value(v); }, x);
      continue;
    }
    uint8_t* codes = p.codes == nullptr ? nullptr : p.codes + i * p.code_stride;
    uint8_t* mask = p.mask == nullptr ? nullptr : p.mask + i * p.mask_stride;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 v = Load(x + c, part);
      out.Put(y + c, H::Value(v), part);
      if (codes != nullptr) StoreCodes<2>(codes, c, TwoBitCodes(v, p.two_bit), part);
      if (mask != nullptr) StoreCodes<1>(mask, c, Gathered<1>(-AboveMask(v, 0.0f)), part);
    });
  }
}

template <typename T, typename H>
void BackwardTyped(const ActivationBackwardParams& p, Range rows) {
  const bool in_place = p.dx == p.dy || p.dx == p.x;
  const Output out(in_place ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride);
    const T* x = RowOf<T>(p.x, i, p.x_stride);
    T* dx = RowOf<T>(p.dx, i, p.dx_stride);
    Each(
        out, p.C, dx, [](F32x16 d, F32x16 v) SNUG_LAMBDA { return d * H::Of(v).slope; }, dy, x);
  }
}

}  // namespace

void ActivationForwardRows(const ActivationForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByActivation(p.activation, [&](auto h) { ForwardTyped<decltype(t), decltype(h)>(p, rows); });
  });
}

void ActivationBackwardRows(const ActivationBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByActivation(p.activation, [&](auto h) { BackwardTyped<decltype(t), decltype(h)>(p, rows); });
  });
}

}  // namespace snug::kernels::SNUG_ISA
