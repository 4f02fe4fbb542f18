// Inner loops of activations with their input as codes, block by block of 128.
#include "kernels/quantized_activation.h"

#include "kernels/cpu/loops/activations.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/quantized.h"
#include "kernels/cpu/loops/range.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// All of a block is read before it is written: y may be x.
template <typename T>
void ForwardBlock(const QuantizedActivationForwardParams& p, const BlockAt& at) {
  const ActivationForwardParams& plain = p.activation;
  Floats128 x, y;
  LoadBlock(RowOf<T>(plain.x, at.row, plain.x_stride), at, x);
  ByActivation(plain.activation, [&](auto h) {
    ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
      Store(y.at + c, decltype(h)::Value(Load(x.at + c, Whole{})), Whole{});
    });
  });
  StoreBlock(y, at, RowOf<T>(plain.y, at.row, plain.y_stride));
  QuantizeBlock(p.x, p.dither, at, x);
}

template <typename T>
void BackwardBlock(const QuantizedActivationBackwardParams& p, const BlockAt& at) {
  const ActivationBackwardParams& plain = p.activation;
  Floats128 x, dy;
  DequantizeBlock(p.x, at, x);
  LoadBlock(RowOf<T>(plain.dy, at.row, plain.dy_stride), at, dy);
  ByActivation(plain.activation, [&](auto h) {
    ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
      const F32x16 slope = decltype(h)::Of(Load(x.at + c, Whole{})).slope;
      Store(dy.at + c, Load(dy.at + c, Whole{}) * slope, Whole{});
    });
  });
  StoreBlock(dy, at, RowOf<T>(plain.dx, at.row, plain.dx_stride));
}

}  // namespace

void QuantizedActivationForwardRows(const QuantizedActivationForwardParams& p, Range rows) {
  ByType(p.activation.dtype, [&](auto t) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      ForBlocks(i, p.activation.C, [&](const BlockAt& at) { ForwardBlock<decltype(t)>(p, at); });
    }
  });
}

void QuantizedActivationBackwardRows(const QuantizedActivationBackwardParams& p, Range rows) {
  ByType(p.activation.dtype, [&](auto t) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      ForBlocks(i, p.activation.C, [&](const BlockAt& at) { BackwardBlock<decltype(t)>(p, at); });
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
