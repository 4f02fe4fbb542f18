// Norms, their affine step, and a norm taken together with the linear that follows it.
#include "kernels/affine.h"
#include "kernels/norm_merge.h"
#include "kernels/normalize.h"
#include "kernels/rms_norm.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::Norm;

Case NormalizeForward(Operands& o) {
  const at::Tensor x = o.Random(), xhat = o.Empty(), r = o.Empty({o.N}, at::kFloat);
  return {.bytes = 2 * o.bytes() + 4 * o.N,
          .own = Call(kernels::NormalizeForward, {.x = x.data_ptr(),
                                                  .xhat = xhat.data_ptr(),
                                                  .r = Floats(r),
                                                  .N = o.N,
                                                  .C = o.C,
                                                  .x_stride = o.C,
                                                  .xhat_stride = o.C,
                                                  .dtype = o.dtype,
                                                  .eps = 1e-5f}),
          .torch = [=, C = o.C] { at::rms_norm(x, {C}, std::nullopt, 1e-5); }};
}

Case NormalizeBackward(Operands& o) {
  const at::Tensor g = o.Random(), xhat = o.Random(), dx = o.Empty();
  const at::Tensor r = o.Ones({o.N, 1}, at::kFloat);
  return {.bytes = 3 * o.bytes() + 4 * o.N,
          .own = Call(kernels::NormalizeBackward, {.dxhat = g.data_ptr(),
                                                   .xhat = xhat.data_ptr(),
                                                   .r = Floats(r),
                                                   .dx = dx.data_ptr(),
                                                   .N = o.N,
                                                   .C = o.C,
                                                   .dxhat_stride = o.C,
                                                   .xhat_stride = o.C,
                                                   .dx_stride = o.C,
                                                   .dtype = o.dtype}),
          .torch = [=] { ((g - xhat * (g * xhat).mean({1}, true)) * r).to(g.scalar_type()); }};
}

// Both steps at once, as LibTorch has them.
Case LayerForward(Operands& o) {
  const at::Tensor x = o.Random(), z = o.Empty(), gamma = o.Random({o.C}), beta = o.Random({o.C});
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::NormalizeForward, {.x = x.data_ptr(),
                                                  .N = o.N,
                                                  .C = o.C,
                                                  .x_stride = o.C,
                                                  .dtype = o.dtype,
                                                  .eps = 1e-5f,
                                                  .norm = Norm::kLayer,
                                                  .z = z.data_ptr(),
                                                  .gamma = gamma.data_ptr(),
                                                  .beta = beta.data_ptr(),
                                                  .z_stride = o.C,
                                                  .gamma_dtype = o.dtype,
                                                  .round_xhat = false}),
          .torch = [=, C = o.C] { at::native_layer_norm(x, {C}, gamma, beta, 1e-5); }};
}

Case LayerBackward(Operands& o) {
  const at::Tensor dz = o.Random(), x = o.Random(), dx = o.Empty(), gamma = o.Random({o.C});
  const at::Tensor r = o.Ones({o.N}, at::kFloat), mean = o.Keep(at::zeros({o.N, 1}, x.options()));
  const at::Tensor torch_r = o.Keep(r.to(o.type()).view({o.N, 1}));
  return {.bytes = 3 * o.bytes() + 4 * o.N,
          .own = Call(kernels::NormalizeBackward, {.dxhat = dz.data_ptr(),
                                                   .xhat = x.data_ptr(),
                                                   .r = Floats(r),
                                                   .dx = dx.data_ptr(),
                                                   .N = o.N,
                                                   .C = o.C,
                                                   .dxhat_stride = o.C,
                                                   .xhat_stride = o.C,
                                                   .dx_stride = o.C,
                                                   .dtype = o.dtype,
                                                   .norm = Norm::kLayer,
                                                   .gamma = gamma.data_ptr(),
                                                   .gamma_dtype = o.dtype}),
          .torch = [=, C = o.C] {
            at::native_layer_norm_backward(dz, x, {C}, mean, torch_r, gamma, gamma,
                                           {true, false, false});
          }};
}

Case RmsNormForward(Operands& o) {
  const at::Tensor x = o.Random(), z = o.Empty(), gamma = o.Random({o.C});
  const at::Tensor r = o.Empty({o.N}, at::kFloat);
  return {.bytes = 2 * o.bytes() + 4 * o.N,
          .own = Call(kernels::RmsNormForward, {.x = x.data_ptr(),
                                                .gamma = gamma.data_ptr(),
                                                .z = z.data_ptr(),
                                                .r = Floats(r),
                                                .N = o.N,
                                                .C = o.C,
                                                .x_stride = o.C,
                                                .z_stride = o.C,
                                                .dtype = o.dtype,
                                                .gamma_dtype = o.dtype,
                                                .eps = 1e-5f}),
          .torch = [=, C = o.C] { at::rms_norm(x, {C}, gamma, 1e-5); }};
}

Case RmsNormBackward(Operands& o) {
  const at::Tensor dz = o.Random(), x = o.Random(), dx = o.Empty(), gamma = o.Random({o.C});
  const at::Tensor r = o.Ones({o.N, 1}, at::kFloat), dgamma = o.Empty({o.C}, at::kFloat);
  return {.bytes = 5 * o.bytes() + 4 * (o.N + o.C),
          .own = Call(kernels::RmsNormBackward,
                      {.dz = dz.data_ptr(),
                       .x = x.data_ptr(),
                       .r = Floats(r),
                       .gamma = gamma.data_ptr(),
                       .dx = dx.data_ptr(),
                       .dgamma = Floats(dgamma),
                       .N = o.N,
                       .C = o.C,
                       .dz_stride = o.C,
                       .x_stride = o.C,
                       .dx_stride = o.C,
                       .dtype = o.dtype,
                       .gamma_dtype = o.dtype,
                       .workspace = o.Workspace(kernels::ColumnSumsWorkspace(o.N, o.C))}),
          .torch = [=] {
            const at::Tensor xhat = (x * r).to(x.scalar_type()), g = dz * gamma;
            ((g - xhat * (g * xhat).mean({1}, true)) * r).to(g.scalar_type());
            (dz * xhat).sum({0}, false, at::kFloat);
          }};
}

Case AffineForward(Operands& o) {
  const at::Tensor x = o.Random(), gamma = o.Ones({o.C}, o.type());
  at::Tensor z = o.Empty();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::AffineForward, {.xhat = x.data_ptr(),
                                               .gamma = gamma.data_ptr(),
                                               .z = z.data_ptr(),
                                               .N = o.N,
                                               .C = o.C,
                                               .xhat_stride = o.C,
                                               .z_stride = o.C,
                                               .dtype = o.dtype,
                                               .gamma_dtype = o.dtype}),
          .torch = [=]() mutable { at::mul_out(z, x, gamma); }};
}

Case AffineBackward(Operands& o) {
  const at::Tensor dz = o.Random(), xhat = o.Random(), gamma = o.Ones({o.C}, o.type());
  const at::Tensor dgamma = o.Empty({o.C}, at::kFloat);
  at::Tensor dxhat = o.Empty();
  return {.bytes = 3 * o.bytes() + 4 * o.C,
          .own = Call(kernels::AffineBackward,
                      {.dz = dz.data_ptr(),
                       .gamma = gamma.data_ptr(),
                       .xhat = xhat.data_ptr(),
                       .dxhat = dxhat.data_ptr(),
                       .dgamma = Floats(dgamma),
                       .N = o.N,
                       .C = o.C,
                       .dz_stride = o.C,
                       .xhat_stride = o.C,
                       .dxhat_stride = o.C,
                       .dtype = o.dtype,
                       .gamma_dtype = o.dtype,
                       .workspace = o.Workspace(kernels::ColumnSumsWorkspace(o.N, o.C))}),
          .torch = [=]() mutable {
            at::mul_out(dxhat, dz, gamma);
            (dz * xhat).sum({0}, false, at::kFloat);
          }};
}

// dW' is fp32 whatever the weight is.
Case FoldNorm(Operands& o) {
  const at::Tensor g = o.Keep(at::randn({o.N, o.C}, o.options(at::kFloat))), w = o.Random();
  const at::Tensor s = o.Ones({o.N}, at::kFloat), gamma = o.Random({o.C}), beta = o.Random({o.C});
  const at::Tensor dw = o.Empty({o.N, o.C}, at::kFloat), sums = o.Empty({2, o.C}, at::kFloat);
  return {.bytes = 8 * o.elements() + o.bytes() + 4 * (o.N + 2 * o.C),
          .own = Call(kernels::FoldNorm,
                      {.g = Floats(g),
                       .s = Floats(s),
                       .gamma = gamma.data_ptr(),
                       .beta = beta.data_ptr(),
                       .w = w.data_ptr(),
                       .dw = Floats(dw),
                       .dgamma = Floats(sums),
                       .dbeta = Floats(sums) + o.C,
                       .N = o.N,
                       .C = o.C,
                       .g_stride = o.C,
                       .w_stride = o.C,
                       .dw_stride = o.C,
                       .w_dtype = o.dtype,
                       .gamma_dtype = o.dtype,
                       .workspace = o.Workspace(2 * kernels::ColumnSumsWorkspace(o.N, o.C))}),
          .torch = [=] {
            at::addr(g * gamma, s, beta.to(at::kFloat));
            (w * g).sum({0});
            at::mv(w.t(), s.to(w.scalar_type()));
          }};
}

kernels::MergeNormParams Merge(Operands& o, const at::Tensor& w, const at::Tensor& vectors) {
  const auto vector = [&](int64_t i) { return vectors.select(0, i).data_ptr(); };
  return {.w = w.data_ptr(),
          .b = o.Random({o.N}).data_ptr(),
          .gamma = vector(0),
          .beta = vector(1),
          .merged_w = o.Empty().data_ptr(),
          .merged_b = o.Random({o.N}).data_ptr(),
          .N = o.N,
          .C = o.C,
          .w_stride = o.C,
          .merged_w_stride = o.C,
          .dtype = o.dtype,
          .gamma_dtype = o.dtype};
}

Case MergeNorm(Operands& o) {
  const at::Tensor w = o.Random(), vectors = o.Random({2, o.C});
  return {
      .bytes = 2 * o.bytes(), .own = Call(kernels::MergeNorm, Merge(o, w, vectors)), .torch = [=] {
        const at::Tensor wide = w.to(at::kDouble), scales = vectors.to(at::kDouble);
        (wide * scales[0]).to(w.scalar_type());
        at::mv(wide, scales[1]);
      }};
}

Case UnmergeNorm(Operands& o) {
  const at::Tensor w = o.Random(), vectors = o.Random({2, o.C});
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::UnmergeNorm, Merge(o, w, vectors)),
          .torch = [=] {
            const at::Tensor scales = vectors.to(at::kDouble);
            const at::Tensor wide = w.to(at::kDouble) / scales[0];
            wide.to(w.scalar_type());
            at::mv(wide, scales[1]);
          }};
}

}  // namespace

std::vector<Row> NormRows() {
  return {
      {"NormalizeForward", NormalizeForward},
      {"NormalizeForward, layer norm with z", LayerForward},
      {"NormalizeBackward", NormalizeBackward},
      {"NormalizeBackward, layer norm with gamma", LayerBackward},
      {"RmsNormForward", RmsNormForward},
      {"RmsNormBackward", RmsNormBackward},
      {"AffineForward", AffineForward},
      {"AffineBackward", AffineBackward},
      {"FoldNorm", FoldNorm},
      {"MergeNorm", MergeNorm},
      {"UnmergeNorm", UnmergeNorm},
  };
}

}  // namespace snug::bench
