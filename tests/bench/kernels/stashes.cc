// Stashes in 8 and 4 bits, by themselves and fused into norms and activations. LibTorch's side is
// the same arithmetic by its ops, with its own random numbers, and codes of a byte each.
#include "kernels/quantize.h"
#include "kernels/quantized_activation.h"
#include "kernels/quantized_norm.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::CodeBits, kernels::Quantized, kernels::RangeKind;

constexpr kernels::Dither kDither = {.site = {.seed = 7}};
constexpr int64_t kGroupColumns = 128;

// Random codes with ranges that are numbers.
Quantized Stash(Operands& o, CodeBits bits, RangeKind kind) {
  Quantized q = {.codes_stride = kernels::CodeBytes(o.C, bits), .bits = bits, .kind = kind};
  if (kind == RangeKind::kGroups) q.grouping.group_columns = std::min(kGroupColumns, o.C);
  q.codes = o.Keep(at::randint(0, 256, {o.N, q.codes_stride}, o.options(at::kInt)).to(at::kByte))
                .data_ptr();
  const at::ScalarType type = kind == RangeKind::kBlocks ? at::kBFloat16 : at::kFloat;
  const int64_t numbers = kernels::RangeBytes(q, o.N, o.C) / c10::elementSize(type);
  q.ranges = o.Ones({numbers}, type).data_ptr();
  return q;
}

int64_t StashBytes(const Operands& o, const Quantized& q) {
  return o.N * q.codes_stride + kernels::RangeBytes(q, o.N, o.C);
}

// Of columns by 128, where that divides.
at::Tensor Blocks(const at::Tensor& x) {
  return x.view({x.size(0), -1, x.size(1) % kGroupColumns == 0 ? kGroupColumns : x.size(1)});
}

void TorchQuantize(const at::Tensor& x) {
  const at::Tensor blocks = Blocks(x);
  const auto [low, high] = at::aminmax(blocks, -1, true);
  const at::Tensor scaled = (blocks - low) / ((high - low) / 255);
  scaled.add_(at::rand_like(scaled)).clamp_(0, 255).to(at::kByte);
}

at::Tensor TorchDequantize(const at::Tensor& codes, const at::Tensor& ranges, at::ScalarType type) {
  return Blocks(codes).to(type).mul_(ranges).add_(ranges).view(codes.sizes());
}

Case UpdateRanges(Operands& o) {
  const at::Tensor x = o.Random(), state = o.Ones({3, o.C}, at::kFloat);
  const kernels::Grouping grouping = {.group_columns = std::min(kGroupColumns, o.C)};
  const int64_t groups = kernels::GroupsOf(grouping, o.C);
  return {.bytes = o.bytes(),
          .own = Call(kernels::UpdateRanges,
                      {.x = x.data_ptr(),
                       .alpha = Floats(state[0]),
                       .beta = Floats(state[1]),
                       .updates = static_cast<int32_t*>(state[2].data_ptr()),
                       .ranges = static_cast<kernels::Range32*>(o.Workspace(8 * groups)),
                       .N = o.N,
                       .C = o.C,
                       .x_stride = o.C,
                       .dtype = o.dtype,
                       .grouping = grouping,
                       .workspace = o.Workspace(kernels::UpdateRangesWorkspace(o.N, groups))}),
          .torch = [=] {
            const at::Tensor blocks = Blocks(x);
            blocks.amin({0, 2});
            blocks.amax({0, 2});
          }};
}

Case Quantize(Operands& o, CodeBits bits, RangeKind kind) {
  const at::Tensor x = o.Random();
  const Quantized q = Stash(o, bits, kind);
  return {.bytes = o.bytes() + StashBytes(o, q),
          .own = Call(kernels::Quantize, {.x = x.data_ptr(),
                                          .to = q,
                                          .N = o.N,
                                          .C = o.C,
                                          .x_stride = o.C,
                                          .dtype = o.dtype,
                                          .dither = kDither}),
          .torch = [=] { TorchQuantize(x); }};
}

Case Dequantize(Operands& o, CodeBits bits, RangeKind kind) {
  const at::Tensor y = o.Empty(), codes = o.Ones({o.N, o.C}, at::kByte);
  const at::Tensor ranges = o.Ones({o.N, Blocks(y).size(1), 1}, o.type());
  const Quantized q = Stash(o, bits, kind);
  return {
      .bytes = o.bytes() + StashBytes(o, q),
      .own = Call(
          kernels::Dequantize,
          {.from = q, .y = y.data_ptr(), .N = o.N, .C = o.C, .y_stride = o.C, .dtype = o.dtype}),
      .torch = [=, type = o.type()] { TorchDequantize(codes, ranges, type); }};
}

Case ActivationForward(Operands& o) {
  const at::Tensor x = o.Random();
  at::Tensor y = o.Empty();
  const Quantized q = Stash(o, CodeBits::k8, RangeKind::kBlocks);
  return {.bytes = 2 * o.bytes() + StashBytes(o, q),
          .own = Call(kernels::QuantizedActivationForward, {.activation = {.x = x.data_ptr(),
                                                                           .y = y.data_ptr(),
                                                                           .N = o.N,
                                                                           .C = o.C,
                                                                           .x_stride = o.C,
                                                                           .y_stride = o.C,
                                                                           .dtype = o.dtype},
                                                            .x = q,
                                                            .dither = kDither}),
          .torch = [=]() mutable {
            at::silu_out(y, x);
            TorchQuantize(x);
          }};
}

Case ActivationBackward(Operands& o) {
  const at::Tensor dy = o.Random(), dx = o.Empty(), codes = o.Ones({o.N, o.C}, at::kByte);
  const at::Tensor ranges = o.Ones({o.N, Blocks(dy).size(1), 1}, o.type());
  const Quantized q = Stash(o, CodeBits::k8, RangeKind::kBlocks);
  return {.bytes = 2 * o.bytes() + StashBytes(o, q),
          .own = Call(kernels::QuantizedActivationBackward, {.activation = {.dy = dy.data_ptr(),
                                                                            .dx = dx.data_ptr(),
                                                                            .N = o.N,
                                                                            .C = o.C,
                                                                            .dy_stride = o.C,
                                                                            .dx_stride = o.C,
                                                                            .dtype = o.dtype},
                                                             .x = q}),
          .torch = [=, type = o.type()] {
            at::silu_backward(dy, TorchDequantize(codes, ranges, type));
          }};
}

Case NormForward(Operands& o) {
  const at::Tensor x = o.Random(), z = o.Empty(), gamma = o.Random({o.C});
  const Quantized q = Stash(o, CodeBits::k8, RangeKind::kBlocks);
  return {
      .bytes = 2 * o.bytes() + StashBytes(o, q) + 4 * o.N,
      .own = Call(kernels::QuantizedNormForward, {.norm = {.x = x.data_ptr(),
                                                           .r = Floats(o.Empty({o.N}, at::kFloat)),
                                                           .N = o.N,
                                                           .C = o.C,
                                                           .x_stride = o.C,
                                                           .dtype = o.dtype,
                                                           .eps = 1e-5f,
                                                           .z = z.data_ptr(),
                                                           .gamma = gamma.data_ptr(),
                                                           .z_stride = o.C,
                                                           .gamma_dtype = o.dtype},
                                                  .xhat = q,
                                                  .dither = kDither}),
      .torch = [=, C = o.C] {
        const at::Tensor xhat = at::rms_norm(x, {C}, std::nullopt, 1e-5);
        TorchQuantize(xhat);
        xhat* gamma;
      }};
}

Case NormBackward(Operands& o) {
  const at::Tensor g = o.Random(), dx = o.Empty(), codes = o.Ones({o.N, o.C}, at::kByte);
  const at::Tensor r = o.Ones({o.N, 1}, at::kFloat);
  const at::Tensor ranges = o.Ones({o.N, Blocks(g).size(1), 1}, o.type());
  const Quantized q = Stash(o, CodeBits::k8, RangeKind::kBlocks);
  return {.bytes = 2 * o.bytes() + StashBytes(o, q) + 4 * o.N,
          .own = Call(kernels::QuantizedNormBackward, {.norm = {.dxhat = g.data_ptr(),
                                                                .r = Floats(r),
                                                                .dx = dx.data_ptr(),
                                                                .N = o.N,
                                                                .C = o.C,
                                                                .dxhat_stride = o.C,
                                                                .dx_stride = o.C,
                                                                .dtype = o.dtype},
                                                       .xhat = q}),
          .torch = [=, type = o.type()] {
            const at::Tensor xhat = TorchDequantize(codes, ranges, type);
            ((g - xhat * (g * xhat).mean({1}, true)) * r).to(type);
          }};
}

Case NormSums(Operands& o) {
  const at::Tensor dz = o.Random(), codes = o.Ones({o.N, o.C}, at::kByte);
  const at::Tensor sums = o.Empty({2, o.C}, at::kFloat);
  const at::Tensor ranges = o.Ones({o.N, Blocks(dz).size(1), 1}, o.type());
  const Quantized q = Stash(o, CodeBits::k8, RangeKind::kBlocks);
  return {
      .bytes = o.bytes() + StashBytes(o, q) + 8 * o.C,
      .own = Call(kernels::QuantizedNormSums,
                  {.affine = {.dz = dz.data_ptr(),
                              .dgamma = Floats(sums[0]),
                              .N = o.N,
                              .C = o.C,
                              .dz_stride = o.C,
                              .dtype = o.dtype,
                              .workspace = o.Workspace(2 * kernels::ColumnSumsWorkspace(o.N, o.C)),
                              .dbeta = Floats(sums[1])},
                   .xhat = q}),
      .torch = [=, type = o.type()] {
        (dz * TorchDequantize(codes, ranges, type)).sum({0}, false, at::kFloat);
        dz.sum({0}, false, at::kFloat);
      }};
}

}  // namespace

std::vector<Row> StashRows() {
  using enum CodeBits;
  using enum RangeKind;
  return {
      {"UpdateRanges, groups of 128 columns", UpdateRanges},
      {"Quantize, 8 bits, blocks", [](Operands& o) { return Quantize(o, k8, kBlocks); }},
      {"Quantize, 8 bits, groups", [](Operands& o) { return Quantize(o, k8, kGroups); }},
      {"Quantize, 4 bits, blocks", [](Operands& o) { return Quantize(o, k4, kBlocks); }},
      {"Dequantize, 8 bits, blocks", [](Operands& o) { return Dequantize(o, k8, kBlocks); }},
      {"Dequantize, 8 bits, groups", [](Operands& o) { return Dequantize(o, k8, kGroups); }},
      {"Dequantize, 4 bits, blocks", [](Operands& o) { return Dequantize(o, k4, kBlocks); }},
      {"QuantizedActivationForward, SiLU", ActivationForward},
      {"QuantizedActivationBackward, SiLU", ActivationBackward},
      {"QuantizedNormForward", NormForward},
      {"QuantizedNormBackward", NormBackward},
      {"QuantizedNormSums", NormSums},
  };
}

}  // namespace snug::bench
