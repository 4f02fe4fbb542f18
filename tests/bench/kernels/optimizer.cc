// The optimizer: norms of gradients and AdamW.
#include "kernels/adamw.h"
#include "kernels/grad_norm.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::DType, kernels::Stream;

Case SumSquares(Operands& o) {
  const at::Tensor x = o.Random(), sum = o.Empty({1}, at::kDouble);
  void* const workspace = o.Workspace(kernels::SumSquaresWorkspace());
  return {
      .bytes = o.bytes(),
      .own =
          [=, tensor = kernels::NormTensor{.x = x.data_ptr(), .n = o.elements(), .dtype = o.dtype}](
              Stream stream) {
            return kernels::SumSquares({.tensors = &tensor,
                                        .count = 1,
                                        .sum_squares = sum.data_ptr<double>(),
                                        .workspace = workspace},
                                       stream);
          },
      .torch = [=] { x.norm(); }};
}

Case ClipFactor(Operands& o) {
  const at::Tensor sum = o.Ones({1}, at::kDouble), factor = o.Empty({1}, at::kFloat);
  return {.bytes = 12,
          .own = Call(
              kernels::ClipFactor,
              {.sum_squares = sum.data_ptr<double>(), .max_norm = 1.0, .factor = Floats(factor)}),
          .torch = [=] { (1.0 / (sum.sqrt() + 1e-6)).clamp_max_(1.0).to(at::kFloat); }};
}

// Of fp32 parameters; a row of bf16 asks for the copy, which LibTorch makes by itself.
struct AdamWOperands {
  at::Tensor p, g, m, v, copy;
  explicit AdamWOperands(Operands& o)
      : p(o.Keep(at::randn({o.N, o.C}, o.options(at::kFloat)))),
        g(o.Keep(at::randn_like(p))),
        m(o.Keep(at::zeros_like(p))),
        v(o.Keep(at::zeros_like(p))) {
    if (o.dtype != DType::kF32) copy = o.Empty();
  }
  kernels::AdamWTensor Tensor() const {
    return {.p = Floats(p),
            .g = Floats(g),
            .m = Floats(m),
            .v = Floats(v),
            .copy = copy.defined() ? copy.data_ptr() : nullptr,
            .n = p.numel()};
  }
};

std::function<kernels::Error(Stream)> Update(const kernels::AdamWTensor& tensor) {
  return [=](Stream stream) {
    return kernels::AdamW({.tensors = &tensor, .count = 1, .step = 1, .lr = 1e-6}, stream);
  };
}

Case AdamW(Operands& o) {
  const AdamWOperands own(o);
  const at::Tensor step = o.Ones({}, at::kFloat);
  return {.bytes = o.elements() * (28 + (own.copy.defined() ? 2 : 0)),
          .own = Update(own.Tensor()),
          .torch = [=] {
            at::_fused_adamw_({own.p}, {own.g}, {own.m}, {own.v}, {}, {step}, 1e-6, 0.9, 0.999, 0.0,
                              1e-8, false, false);
            if (own.copy.defined()) own.copy.copy_(own.p);
          }};
}

Case AdamWCodes(Operands& o) {
  const AdamWOperands own(o);
  const int64_t n = o.elements(), blocks = kernels::CodeBlocks(n);
  const at::Tensor codes = o.Keep(at::zeros({2, n}, o.options(at::kByte)));
  const at::Tensor scales = o.Keep(at::zeros({2, blocks}, o.options(at::kFloat)));
  kernels::AdamWTensor tensor = own.Tensor();
  tensor.m = tensor.v = nullptr;
  tensor.codes = {.m = Bytes(codes[0]),
                  .v = Bytes(codes[1]),
                  .m_scale = Floats(scales[0]),
                  .v_scale = Floats(scales[1])};
  return {.bytes = n * (16 + (own.copy.defined() ? 2 : 0)) + 16 * blocks,
          .own = Update(tensor),
          .torch = nullptr};
}

}  // namespace

std::vector<Row> OptimizerRows() {
  return {
      {"SumSquares", SumSquares},
      {"ClipFactor", ClipFactor},
      {"AdamW", AdamW},
      {"AdamW, moments in 8 bits", AdamWCodes},
  };
}

}  // namespace snug::bench
