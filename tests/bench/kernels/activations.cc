// Activations, exact and with codes, gated units, and dropout. LibTorch's codes are a byte each.
#include "kernels/activation.h"
#include "kernels/codes.h"
#include "kernels/dropout.h"
#include "kernels/glu.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::Activation;

enum class With { kNothing, kCodes, kMask };

void TorchForward(Activation h, const at::Tensor& x, at::Tensor& y) {
  if (h == Activation::kSilu) at::silu_out(y, x);
  if (h == Activation::kGeluTanh) at::gelu_out(y, x, "tanh");
  if (h == Activation::kGelu) at::gelu_out(y, x, "none");
  if (h == Activation::kRelu) at::relu_out(y, x);
}

at::Tensor TorchBackward(Activation h, const at::Tensor& dy, const at::Tensor& x) {
  if (h == Activation::kSilu) return at::silu_backward(dy, x);
  if (h == Activation::kGeluTanh) return at::gelu_backward(dy, x, "tanh");
  if (h == Activation::kGelu) return at::gelu_backward(dy, x, "none");
  return at::threshold_backward(dy, x, 0);
}

void TorchCodes(const at::Tensor& x, const kernels::TwoBit& two_bit, With with) {
  if (with == With::kMask) x.gt(0);
  if (with != With::kCodes) return;
  const at::Tensor codes = x.gt(two_bit.threshold[0]).to(at::kByte);
  codes.add_(x.gt(two_bit.threshold[1])).add_(x.gt(two_bit.threshold[2]));
}

// dy times the slope of each code.
at::Tensor TorchFromCodes(const at::Tensor& dy, const at::Tensor& codes, const at::Tensor& slopes) {
  return slopes.index_select(0, codes.view(-1).to(at::kInt)).view(dy.sizes()).mul_(dy);
}

Case Forward(Operands& o, Activation h, With with = With::kNothing) {
  const at::Tensor x = o.Random();
  at::Tensor y = o.Empty();
  kernels::ActivationForwardParams p = {.x = x.data_ptr(),
                                        .y = y.data_ptr(),
                                        .N = o.N,
                                        .C = o.C,
                                        .x_stride = o.C,
                                        .y_stride = o.C,
                                        .code_stride = kernels::CodeBytes(o.C),
                                        .mask_stride = kernels::MaskBytes(o.C),
                                        .dtype = o.dtype,
                                        .activation = h,
                                        .two_bit = kernels::TwoBitOf(h)};
  int64_t written = 0;
  if (with == With::kCodes) written = o.N * p.code_stride;
  if (with == With::kMask) written = o.N * p.mask_stride;
  const at::Tensor codes = o.Empty({written}, at::kByte);
  if (with == With::kCodes) p.codes = Bytes(codes);
  if (with == With::kMask) p.mask = Bytes(codes);
  return {.bytes = 2 * o.bytes() + written,
          .own = Call(kernels::ActivationForward, p),
          .torch = [=]() mutable {
            TorchForward(h, x, y);
            TorchCodes(x, p.two_bit, with);
          }};
}

Case Backward(Operands& o, Activation h) {
  const at::Tensor dy = o.Random(), x = o.Random(), dx = o.Empty();
  return {.bytes = 3 * o.bytes(),
          .own = Call(kernels::ActivationBackward, {.dy = dy.data_ptr(),
                                                    .x = x.data_ptr(),
                                                    .dx = dx.data_ptr(),
                                                    .N = o.N,
                                                    .C = o.C,
                                                    .dy_stride = o.C,
                                                    .x_stride = o.C,
                                                    .dx_stride = o.C,
                                                    .dtype = o.dtype,
                                                    .activation = h}),
          .torch = [=] { TorchBackward(h, dy, x); }};
}

Case CodeBackward(Operands& o, int bits) {
  const at::Tensor dy = o.Random(), dx = o.Empty();
  const at::Tensor torch_codes = o.Ones({o.N, o.C}, at::kByte), slopes = o.Ones({4}, o.type());
  const int64_t stride = bits == 2 ? kernels::CodeBytes(o.C) : kernels::MaskBytes(o.C);
  const at::Tensor codes =
      o.Keep(at::randint(0, 256, {o.N, stride}, o.options(at::kInt)).to(at::kByte));
  kernels::CodeBackwardParams p = {.dy = dy.data_ptr(),
                                   .codes = Bytes(codes),
                                   .dx = dx.data_ptr(),
                                   .N = o.N,
                                   .C = o.C,
                                   .dy_stride = o.C,
                                   .code_stride = stride,
                                   .dx_stride = o.C,
                                   .dtype = o.dtype,
                                   .bits = bits};
  if (bits == 1) p.slope[1] = 1.0f;
  if (bits == 2) std::copy_n(kernels::kReSilu2.slope, 4, p.slope);
  return {.bytes = 2 * o.bytes() + o.N * stride,
          .own = Call(kernels::CodeBackward, p),
          .torch = [=] { TorchFromCodes(dy, torch_codes, slopes); }};
}

// h(g) * u by two of LibTorch's ops.
Case GluForward(Operands& o, Activation h, bool with_codes = false) {
  const at::Tensor g = o.Random(), u = o.Random();
  at::Tensor out = o.Empty();
  kernels::GluForwardParams p = {.g = g.data_ptr(),
                                 .u = u.data_ptr(),
                                 .p = out.data_ptr(),
                                 .N = o.N,
                                 .C = o.C,
                                 .g_stride = o.C,
                                 .u_stride = o.C,
                                 .p_stride = o.C,
                                 .dtype = o.dtype,
                                 .gate = h};
  int64_t bytes = 3 * o.bytes();
  if (with_codes) {
    p.a = o.Empty().data_ptr();
    p.a_stride = o.C;
    p.code_stride = kernels::CodeBytes(o.C);
    p.codes = Bytes(o.Empty({o.N, p.code_stride}, at::kByte));
    p.two_bit = kernels::TwoBitOf(h);
    bytes = 4 * o.bytes() + o.N * p.code_stride;
  }
  return {.bytes = bytes, .own = Call(kernels::GluForward, p), .torch = [=]() mutable {
            TorchForward(h, g, out);
            if (with_codes) {
              TorchCodes(g, p.two_bit, With::kCodes);
              at::mul(out, u);
            } else {
              out.mul_(u);
            }
          }};
}

Case GluBackward(Operands& o, Activation h, bool with_codes = false) {
  const at::Tensor dp = o.Random(), g = o.Random(), u = o.Random(), dg = o.Empty();
  at::Tensor du = o.Empty();
  kernels::GluBackwardParams p = {.dp = dp.data_ptr(),
                                  .g = g.data_ptr(),
                                  .u = u.data_ptr(),
                                  .dg = dg.data_ptr(),
                                  .du = du.data_ptr(),
                                  .N = o.N,
                                  .C = o.C,
                                  .dp_stride = o.C,
                                  .g_stride = o.C,
                                  .u_stride = o.C,
                                  .dg_stride = o.C,
                                  .du_stride = o.C,
                                  .dtype = o.dtype,
                                  .gate = h};
  int64_t bytes = 5 * o.bytes();
  at::Tensor torch_codes, slopes;
  if (with_codes) {
    torch_codes = o.Ones({o.N, o.C}, at::kByte);
    slopes = o.Ones({4}, o.type());
    p.a = o.Random().data_ptr();
    p.a_stride = o.C;
    p.code_stride = kernels::CodeBytes(o.C);
    p.codes = Bytes(o.Ones({o.N, p.code_stride}, at::kByte));
    p.two_bit = kernels::TwoBitOf(h);
    bytes += o.N * p.code_stride;
  }
  return {.bytes = bytes, .own = Call(kernels::GluBackward, p), .torch = [=]() mutable {
            if (with_codes) {
              at::mul_out(du, dp, g);
              TorchFromCodes(dp * u, torch_codes, slopes);
            } else {
              TorchForward(h, g, du);
              du.mul_(dp);
              TorchBackward(h, dp * u, g);
            }
          }};
}

Case Dropout(Operands& o, bool with_mask) {
  const at::Tensor x = o.Random(), y = o.Empty();
  kernels::DropoutParams p = {.x = x.data_ptr(),
                              .y = y.data_ptr(),
                              .N = o.N,
                              .C = o.C,
                              .x_stride = o.C,
                              .y_stride = o.C,
                              .dtype = o.dtype,
                              .rate = 0.1,
                              .site = {.seed = 7},
                              .mask_stride = kernels::MaskBytes(o.C)};
  if (with_mask) p.mask = Bytes(o.Empty({o.N, p.mask_stride}, at::kByte));
  return {.bytes = 2 * o.bytes() + (with_mask ? o.N * p.mask_stride : 0),
          .own = Call(kernels::Dropout, p),
          .torch = [=] { at::native_dropout(x, 0.1, true); }};
}

}  // namespace

std::vector<Row> ActivationRows() {
  using enum Activation;
  return {
      {"ActivationForward, SiLU", [](Operands& o) { return Forward(o, kSilu); }},
      {"ActivationForward, GELU (tanh)", [](Operands& o) { return Forward(o, kGeluTanh); }},
      {"ActivationForward, GELU (erf)", [](Operands& o) { return Forward(o, kGelu); }},
      {"ActivationForward, ReLU", [](Operands& o) { return Forward(o, kRelu); }},
      {"ActivationForward, SiLU and 2-bit codes",
       [](Operands& o) { return Forward(o, kSilu, With::kCodes); }},
      {"ActivationForward, ReLU and mask",
       [](Operands& o) { return Forward(o, kRelu, With::kMask); }},
      {"ActivationBackward, SiLU", [](Operands& o) { return Backward(o, kSilu); }},
      {"ActivationBackward, GELU (tanh)", [](Operands& o) { return Backward(o, kGeluTanh); }},
      {"ActivationBackward, GELU (erf)", [](Operands& o) { return Backward(o, kGelu); }},
      {"ActivationBackward, ReLU", [](Operands& o) { return Backward(o, kRelu); }},
      {"CodeBackward, 2 bits", [](Operands& o) { return CodeBackward(o, 2); }},
      {"CodeBackward, 1 bit", [](Operands& o) { return CodeBackward(o, 1); }},
      {"GluForward, SwiGLU", [](Operands& o) { return GluForward(o, kSilu); }},
      {"GluForward, GeGLU (tanh)", [](Operands& o) { return GluForward(o, kGeluTanh); }},
      {"GluForward, SwiGLU with h(g) and codes",
       [](Operands& o) { return GluForward(o, kSilu, true); }},
      {"GluBackward, SwiGLU", [](Operands& o) { return GluBackward(o, kSilu); }},
      {"GluBackward, GeGLU (tanh)", [](Operands& o) { return GluBackward(o, kGeluTanh); }},
      {"GluBackward, SwiGLU from codes", [](Operands& o) { return GluBackward(o, kSilu, true); }},
      {"Dropout", [](Operands& o) { return Dropout(o, false); }},
      {"Dropout, with mask", [](Operands& o) { return Dropout(o, true); }},
  };
}

}  // namespace snug::bench
