#include "tests/bench/kernels/rows.h"

#include "kernels/adamw.h"
#include "kernels/bias.h"
#include "kernels/embedding.h"
#include "kernels/grad_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "kernels/uniform_noise.h"

namespace snug::bench {
namespace {

using kernels::DType, kernels::Stream;

at::ScalarType TorchType(DType dtype) {
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};
  return kTypes[static_cast<int>(dtype)];
}

float* Floats(const at::Tensor& x) { return x.data_ptr<float>(); }

at::Tensor Workspace(const Shape& s, int64_t bytes) {
  return at::empty({bytes}, s.options(at::kByte));
}

// ---- norms --------------------------------------------------------------------------------------

Case NormalizeForward(const Shape& s) {
  const at::Tensor x = s.Random(), y = s.Empty(), r = at::empty({s.N}, s.options(at::kFloat));
  return {.bytes = 2 * s.elements() * s.element_bytes() + 4 * s.N,
          .own =
              [=](Stream stream) {
                return kernels::NormalizeForward({.x = x.data_ptr(),
                                                  .xhat = y.data_ptr(),
                                                  .r = Floats(r),
                                                  .N = s.N,
                                                  .C = s.C,
                                                  .x_stride = s.C,
                                                  .xhat_stride = s.C,
                                                  .dtype = s.dtype,
                                                  .eps = 1e-5f},
                                                 stream);
              },
          .torch = [=] { at::rms_norm(x, {s.C}, std::nullopt, 1e-5); }};
}

Case NormalizeBackward(const Shape& s) {
  const at::Tensor g = s.Random(), xhat = s.Random(), dx = s.Empty();
  const at::Tensor r = at::ones({s.N, 1}, s.options(at::kFloat));
  return {.bytes = 3 * s.elements() * s.element_bytes() + 4 * s.N,
          .own =
              [=](Stream stream) {
                return kernels::NormalizeBackward({.dxhat = g.data_ptr(),
                                                   .xhat = xhat.data_ptr(),
                                                   .r = Floats(r),
                                                   .dx = dx.data_ptr(),
                                                   .N = s.N,
                                                   .C = s.C,
                                                   .dxhat_stride = s.C,
                                                   .xhat_stride = s.C,
                                                   .dx_stride = s.C,
                                                   .dtype = s.dtype},
                                                  stream);
              },
          .torch = [=] { ((g - xhat * (g * xhat).mean({1}, true)) * r).to(g.scalar_type()); }};
}

Case AffineForward(const Shape& s) {
  const at::Tensor x = s.Random(), gamma = at::ones({s.C}, s.options()), z = s.Empty();
  return {.bytes = 2 * s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::AffineForward({.xhat = x.data_ptr(),
                                               .gamma = gamma.data_ptr(),
                                               .z = z.data_ptr(),
                                               .N = s.N,
                                               .C = s.C,
                                               .xhat_stride = s.C,
                                               .z_stride = s.C,
                                               .dtype = s.dtype,
                                               .gamma_dtype = s.dtype},
                                              stream);
              },
          .torch =
              [=] {
                at::Tensor to = z;
                at::mul_out(to, x, gamma);
              }};
}

Case AffineBackward(const Shape& s) {
  const at::Tensor dz = s.Random(), xhat = s.Random(), gamma = at::ones({s.C}, s.options());
  const at::Tensor dxhat = s.Empty(), dgamma = at::empty({s.C}, s.options(at::kFloat));
  const at::Tensor workspace = Workspace(s, kernels::ColumnSumsWorkspace(s.N, s.C));
  return {.bytes = 3 * s.elements() * s.element_bytes() + 4 * s.C,
          .own =
              [=](Stream stream) {
                return kernels::AffineBackward({.dz = dz.data_ptr(),
                                                .gamma = gamma.data_ptr(),
                                                .xhat = xhat.data_ptr(),
                                                .dxhat = dxhat.data_ptr(),
                                                .dgamma = Floats(dgamma),
                                                .N = s.N,
                                                .C = s.C,
                                                .dz_stride = s.C,
                                                .xhat_stride = s.C,
                                                .dxhat_stride = s.C,
                                                .dtype = s.dtype,
                                                .gamma_dtype = s.dtype,
                                                .workspace = workspace.data_ptr()},
                                               stream);
              },
          .torch =
              [=] {
                at::Tensor to = dxhat;
                at::mul_out(to, dz, gamma);
                (dz * xhat).sum({0}, false, at::kFloat);
              }};
}

// ---- rows ---------------------------------------------------------------------------------------

// Heads of 128 elements.
Case Rope(const Shape& s) {
  constexpr int64_t kWidth = 128;
  const int64_t heads = s.C / kWidth, half = kWidth / 2;
  const at::Tensor x = s.Random(), y = s.Empty();
  const at::Tensor cos = at::randn({s.N, half}, s.options(at::kFloat));
  const at::Tensor sin = at::randn({s.N, half}, s.options(at::kFloat));
  const auto twice = [&](const at::Tensor& t) {
    return at::cat({t, t}, 1).unsqueeze(1).to(x.scalar_type());
  };
  const at::Tensor wide_cos = twice(cos), wide_sin = twice(sin);
  return {
      .bytes = 2 * s.elements() * s.element_bytes() + 4 * s.N * kWidth,
      .own =
          [=](Stream stream) {
            return kernels::RopeForward({.x = x.data_ptr(),
                                         .y = y.data_ptr(),
                                         .cos = Floats(cos),
                                         .sin = Floats(sin),
                                         .N = s.N,
                                         .heads = heads,
                                         .D = kWidth,
                                         .x_stride = s.C,
                                         .y_stride = s.C,
                                         .dtype = s.dtype},
                                        stream);
          },
      .torch =
          [=] {
            const at::Tensor q = x.view({s.N, heads, kWidth});
            const at::Tensor turned = at::cat({-q.narrow(2, half, half), q.narrow(2, 0, half)}, 2);
            q* wide_cos + turned* wide_sin;
          }};
}

// All rows, in the order of their numbers times an odd one.
at::Tensor Order(const Shape& s, at::ScalarType type) {
  return (at::arange(s.N, s.options(at::kLong)) * 7919).remainder(s.N).to(type);
}

Case Gather(const Shape& s) {
  const at::Tensor x = s.Random(), y = s.Empty(), index = Order(s, at::kLong);
  return {.bytes = 2 * s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::GatherRows({.x = x.data_ptr(),
                                            .index = index.data_ptr(),
                                            .y = y.data_ptr(),
                                            .N = s.N,
                                            .C = s.C,
                                            .x_rows = s.N,
                                            .x_stride = s.C,
                                            .y_stride = s.C,
                                            .dtype = s.dtype,
                                            .index_type = kernels::IndexType::kI64},
                                           stream);
              },
          .torch =
              [=] {
                at::Tensor to = y;
                at::index_select_out(to, x, 0, index);
              }};
}

Case Scatter(const Shape& s) {
  const at::Tensor x = s.Random(), y = s.Empty(), index = at::arange(s.N, s.options(at::kLong));
  return {.bytes = 2 * s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::ScatterRows({.x = x.data_ptr(),
                                             .index = index.data_ptr(),
                                             .y = y.data_ptr(),
                                             .N = s.N,
                                             .C = s.C,
                                             .y_rows = s.N,
                                             .x_stride = s.C,
                                             .y_stride = s.C,
                                             .dtype = s.dtype,
                                             .index_type = kernels::IndexType::kI64},
                                            stream);
              },
          .torch =
              [=] {
                at::Tensor to = y;
                to.index_copy_(0, index, x);
              }};
}

// From fp32 to bf16, or back.
Case Cast(const Shape& s) {
  const DType other = s.dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
  const at::Tensor x = s.Random(), y = at::empty({s.N, s.C}, s.options(TorchType(other)));
  return {.bytes = s.elements() * (s.element_bytes() + kernels::SizeOf(other)),
          .own =
              [=](Stream stream) {
                return kernels::CastRows({.x = x.data_ptr(),
                                          .y = y.data_ptr(),
                                          .N = s.N,
                                          .C = s.C,
                                          .x_stride = s.C,
                                          .y_stride = s.C,
                                          .x_dtype = s.dtype,
                                          .y_dtype = other},
                                         stream);
              },
          .torch = [=] { y.copy_(x); }};
}

Case Add(const Shape& s) {
  const at::Tensor a = s.Random(), b = s.Random(), y = s.Empty();
  return {.bytes = 3 * s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::AddRows({.a = a.data_ptr(),
                                         .b = b.data_ptr(),
                                         .y = y.data_ptr(),
                                         .N = s.N,
                                         .C = s.C,
                                         .a_stride = s.C,
                                         .b_stride = s.C,
                                         .y_stride = s.C,
                                         .a_dtype = s.dtype,
                                         .b_dtype = s.dtype,
                                         .y_dtype = s.dtype,
                                         .scale = 0.5f},
                                        stream);
              },
          .torch =
              [=] {
                at::Tensor to = y;
                at::add_out(to, a, b, 0.5);
              }};
}

Case EmbeddingForward(const Shape& s) {
  const at::Tensor W = s.Random(), y = s.Empty();
  const at::Tensor ids = Order(s, at::kInt), long_ids = ids.to(at::kLong);
  return {.bytes = 2 * s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::EmbeddingForward({.ids = ids.data_ptr<int32_t>(),
                                                  .W = W.data_ptr(),
                                                  .y = y.data_ptr(),
                                                  .N = s.N,
                                                  .C = s.C,
                                                  .V = s.N,
                                                  .W_stride = s.C,
                                                  .y_stride = s.C,
                                                  .dtype = s.dtype},
                                                 stream);
              },
          .torch =
              [=] {
                at::Tensor to = y;
                at::index_select_out(to, W, 0, long_ids);  // What at::embedding calls.
              }};
}

Case EmbeddingBackward(const Shape& s) {
  const at::Tensor dy = s.Random(), dW = at::zeros({s.N, s.C}, s.options(at::kFloat));
  const at::Tensor ids = Order(s, at::kInt), long_ids = ids.to(at::kLong);
  const at::Tensor workspace = Workspace(s, kernels::EmbeddingWorkspace(s.N));
  return {.bytes = s.elements() * (s.element_bytes() + 8),
          .own =
              [=](Stream stream) {
                return kernels::EmbeddingBackward({.ids = ids.data_ptr<int32_t>(),
                                                   .dy = dy.data_ptr(),
                                                   .dW = Floats(dW),
                                                   .N = s.N,
                                                   .C = s.C,
                                                   .V = s.N,
                                                   .dy_stride = s.C,
                                                   .dW_stride = s.C,
                                                   .dtype = s.dtype,
                                                   .workspace = workspace.data_ptr()},
                                                  stream);
              },
          .torch = [=] { at::embedding_dense_backward(dy, long_ids, s.N, -1, false); }};
}

Case UniformNoise(const Shape& s) {
  const at::Tensor x = s.Random();
  return {.bytes = 2 * s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::AddUniformNoise({.x = x.data_ptr(),
                                                 .N = s.N,
                                                 .C = s.C,
                                                 .x_stride = s.C,
                                                 .dtype = s.dtype,
                                                 .magnitude = 1e-6f,
                                                 .site = {.seed = 7}},
                                                stream);
              },
          .torch = [=] { x.add_(at::empty_like(x).uniform_(-1.0, 1.0), 1e-6); }};
}

Case BiasForward(const Shape& s) {
  const at::Tensor b = at::randn({s.C}, s.options()), y = s.Empty();
  return {.bytes = s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                return kernels::BiasForward({.b = b.data_ptr(),
                                             .y = y.data_ptr(),
                                             .N = s.N,
                                             .C = s.C,
                                             .y_stride = s.C,
                                             .dtype = s.dtype},
                                            stream);
              },
          .torch =
              [=] {
                y.copy_(b.expand({s.N, s.C}));
              }};
}

Case BiasBackward(const Shape& s) {
  const at::Tensor dy = s.Random(), db = at::empty({s.C}, s.options(at::kFloat));
  const at::Tensor workspace = Workspace(s, kernels::ColumnSumsWorkspace(s.N, s.C));
  return {.bytes = s.elements() * s.element_bytes() + 4 * s.C,
          .own =
              [=](Stream stream) {
                return kernels::BiasBackward({.dy = dy.data_ptr(),
                                              .db = Floats(db),
                                              .N = s.N,
                                              .C = s.C,
                                              .dy_stride = s.C,
                                              .dtype = s.dtype,
                                              .workspace = workspace.data_ptr()},
                                             stream);
              },
          .torch = [=] { dy.sum({0}, false, at::kFloat); }};
}

// ---- the optimizer ------------------------------------------------------------------------------

Case SumSquares(const Shape& s) {
  const at::Tensor x = s.Random(), sum = at::empty({1}, s.options(at::kDouble));
  const at::Tensor workspace = Workspace(s, kernels::SumSquaresWorkspace());
  return {.bytes = s.elements() * s.element_bytes(),
          .own =
              [=](Stream stream) {
                const kernels::NormTensor tensor = {
                    .x = x.data_ptr(), .n = s.elements(), .dtype = s.dtype};
                return kernels::SumSquares({.tensors = &tensor,
                                            .count = 1,
                                            .sum_squares = sum.data_ptr<double>(),
                                            .workspace = workspace.data_ptr()},
                                           stream);
              },
          .torch = [=] { x.norm(); }};
}

// Of fp32 parameters; a shape of bf16 asks for the copy, which LibTorch makes by itself.
struct AdamWOperands {
  at::Tensor p, g, m, v, copy;
  explicit AdamWOperands(const Shape& s)
      : p(at::randn({s.N, s.C}, s.options(at::kFloat))),
        g(at::randn_like(p)),
        m(at::zeros_like(p)),
        v(at::zeros_like(p)) {
    if (s.dtype != DType::kF32) copy = s.Empty();
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

Case AdamW(const Shape& s) {
  const AdamWOperands own(s);
  const at::Tensor step = at::ones({}, s.options(at::kFloat));
  return {.bytes = s.elements() * (28 + (s.dtype == DType::kF32 ? 0 : 2)),
          .own =
              [=](Stream stream) {
                const kernels::AdamWTensor tensor = own.Tensor();
                return kernels::AdamW({.tensors = &tensor, .count = 1, .step = 1, .lr = 1e-6},
                                      stream);
              },
          .torch =
              [=] {
                at::_fused_adamw_({own.p}, {own.g}, {own.m}, {own.v}, {}, {step}, 1e-6, 0.9, 0.999,
                                  0.0, 1e-8, false, false);
                if (own.copy.defined()) own.copy.copy_(own.p);
              }};
}

Case AdamWCodes(const Shape& s) {
  const AdamWOperands own(s);
  const int64_t n = s.elements();
  const at::Tensor m = at::zeros({n}, s.options(at::kByte)), v = at::zeros_like(m);
  const at::Tensor scales = at::zeros({2, kernels::CodeBlocks(n)}, s.options(at::kFloat));
  return {.bytes = n * (16 + (s.dtype == DType::kF32 ? 0 : 2)) + 16 * kernels::CodeBlocks(n),
          .own =
              [=](Stream stream) {
                kernels::AdamWTensor tensor = own.Tensor();
                tensor.m = tensor.v = nullptr;
                tensor.codes = {.m = m.data_ptr<uint8_t>(),
                                .v = v.data_ptr<uint8_t>(),
                                .m_scale = Floats(scales),
                                .v_scale = Floats(scales) + kernels::CodeBlocks(n)};
                return kernels::AdamW({.tensors = &tensor, .count = 1, .step = 1, .lr = 1e-6},
                                      stream);
              },
          .torch = nullptr};
}

}  // namespace

at::TensorOptions Shape::options() const {
  return at::TensorOptions(device).dtype(TorchType(dtype));
}

const std::vector<Row>& Rows() {
  static const auto& rows = *new std::vector<Row>{
      {"NormalizeForward", NormalizeForward},
      {"NormalizeBackward", NormalizeBackward},
      {"AffineForward", AffineForward},
      {"AffineBackward", AffineBackward},
      {"RopeForward", Rope},
      {"GatherRows", Gather},
      {"ScatterRows", Scatter},
      {"CastRows", Cast},
      {"AddRows", Add},
      {"EmbeddingForward", EmbeddingForward},
      {"EmbeddingBackward", EmbeddingBackward},
      {"AddUniformNoise", UniformNoise},
      {"BiasForward", BiasForward},
      {"BiasBackward", BiasBackward},
      {"SumSquares", SumSquares},
      {"AdamW", AdamW},
      {"AdamW, moments in 8 bits", AdamWCodes},
  };
  return rows;
}

}  // namespace snug::bench
