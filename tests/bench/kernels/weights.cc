// Weights of a frozen base in 4 and 8 bits, and linear layers through them. An operand's rows are
// those of the weight. LibTorch's side of a layer is the weight dequantised by its ops, and its
// product.
#include "kernels/frozen_linear.h"

#include <ATen/Parallel.h>

#include "kernels/int8_weight.h"
#include "kernels/nf4.h"
#include "kernels/nf4_levels.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::FrozenKind, kernels::Int8Weight, kernels::Nf4Weight;

constexpr int64_t kRows = 512;  // Of a layer's input.

// Codes of nothing in particular, with absmax 1.
Nf4Weight MakeNf4(Operands& o) {
  const int64_t n = o.elements();
  return {
      .codes =
          o.Keep(at::randint(0, 256, {kernels::Nf4CodeBytes(n)}, o.options(at::kInt)).to(at::kByte))
              .data_ptr(),
      .absmax = Floats(o.Ones({kernels::Nf4Groups(n)}, at::kFloat)),
      .absmax_codes = Bytes(o.Ones({kernels::Nf4Blocks(n)}, at::kByte)),
      .offset = Floats(o.Ones({1}, at::kFloat))};
}

Int8Weight MakeInt8(Operands& o) {
  const at::Tensor codes = o.Keep(at::randint(-127, 128, {o.N, o.C}, o.options(at::kChar)));
  return {.codes = codes.data_ptr<int8_t>(),
          .absmax = Floats(o.Ones({o.N}, at::kFloat)),
          .codes_stride = o.C};
}

int64_t WeightBytes(const Operands& o, FrozenKind kind) {
  return kind == FrozenKind::kNf4 ? kernels::Nf4Bytes(o.elements(), true) : o.elements() + 4 * o.N;
}

// LibTorch's dequantised weight. Its NF4: halves of bytes index a table, absmax is there in fp32.
std::function<at::Tensor()> TorchWeight(Operands& o, FrozenKind kind) {
  const int64_t N = o.N, C = o.C;
  if (kind == FrozenKind::kInt8) {
    const at::Tensor codes = o.Ones({N, C}, at::kChar), scale = o.Ones({N, 1}, o.type());
    return [=] { return codes * scale; };
  }
  const at::Tensor pairs = o.Ones({kernels::Nf4CodeBytes(N * C)}, at::kByte);
  const at::Tensor levels = o.Random({16});
  const at::Tensor absmax = o.Ones({kernels::Nf4Blocks(N * C), 1}, o.type());
  return [=] {
    const at::Tensor codes = at::stack({pairs.bitwise_right_shift(4), pairs.bitwise_and(15)}, 1);
    const at::Tensor values = levels.index_select(0, codes.view(-1).to(at::kInt));
    return values.view({-1, kernels::kNf4Block}).mul_(absmax).view({N, C});
  };
}

Case QuantizeNf4(Operands& o) {
  const at::Tensor w = o.Random();
  return {.bytes = o.bytes() + WeightBytes(o, FrozenKind::kNf4),
          .own = Call(kernels::QuantizeNf4,
                      {.w = w.data_ptr(),
                       .to = MakeNf4(o),
                       .N = o.N,
                       .K = o.C,
                       .w_stride = o.C,
                       .dtype = o.dtype,
                       .workspace = o.Workspace(kernels::QuantizeNf4Workspace(o.elements()))}),
          .torch = [=, bounds = o.Keep(at::linspace(-1, 1, 15, o.options(o.type())))] {
            const at::Tensor blocks = w.view({-1, kernels::kNf4Block});
            const at::Tensor absmax = blocks.abs().amax({1}, true);
            const at::Tensor codes = at::bucketize(blocks / absmax, bounds, true);
            const at::Tensor pairs = codes.view({-1, 2}).to(at::kByte);
            pairs.select(1, 0).bitwise_left_shift(4).bitwise_or_(pairs.select(1, 1));
          }};
}

Case QuantizeInt8(Operands& o) {
  const at::Tensor w = o.Random();
  return {.bytes = o.bytes() + WeightBytes(o, FrozenKind::kInt8),
          .own = Call(kernels::QuantizeInt8Weight, {.w = w.data_ptr(),
                                                    .to = MakeInt8(o),
                                                    .N = o.N,
                                                    .K = o.C,
                                                    .w_stride = o.C,
                                                    .dtype = o.dtype}),
          .torch = [=] {
            const at::Tensor absmax = w.abs().amax({1}, true);
            (w * (127 / absmax)).round_().to(at::kChar);
          }};
}

Case DequantizeNf4(Operands& o) {
  return {.bytes = o.bytes() + WeightBytes(o, FrozenKind::kNf4),
          .own = Call(kernels::DequantizeNf4, {.from = MakeNf4(o),
                                               .w = o.Empty().data_ptr(),
                                               .N = o.N,
                                               .K = o.C,
                                               .w_stride = o.C,
                                               .dtype = o.dtype}),
          .torch = TorchWeight(o, FrozenKind::kNf4)};
}

Case DequantizeInt8(Operands& o) {
  return {.bytes = o.bytes() + WeightBytes(o, FrozenKind::kInt8),
          .own = Call(kernels::DequantizeInt8Weight, {.from = MakeInt8(o),
                                                      .w = o.Empty().data_ptr(),
                                                      .N = o.N,
                                                      .K = o.C,
                                                      .w_stride = o.C,
                                                      .dtype = o.dtype}),
          .torch = TorchWeight(o, FrozenKind::kInt8)};
}

Case FrozenLinear(Operands& o, FrozenKind kind, bool forward) {
  const int64_t in = forward ? o.C : o.N, out = forward ? o.N : o.C;
  const at::Tensor x = o.Random({kRows, in}), y = o.Empty({kRows, out}, o.type());
  const int64_t workspace = kernels::FrozenLinearWorkspace(at::get_num_threads());
  kernels::FrozenLinearParams p = {.in = x.data_ptr(),
                                   .W = {.kind = kind},
                                   .out = y.data_ptr(),
                                   .M = kRows,
                                   .N = o.N,
                                   .K = o.C,
                                   .in_stride = in,
                                   .out_stride = out,
                                   .dtype = o.dtype,
                                   .workspace = o.Workspace(workspace),
                                   .workspace_bytes = workspace};
  if (kind == FrozenKind::kNf4) p.W.nf4 = MakeNf4(o);
  if (kind == FrozenKind::kInt8) p.W.int8 = MakeInt8(o);
  return {.bytes = kRows * (in + out) * kernels::SizeOf(o.dtype) + WeightBytes(o, kind),
          .own = Call(forward ? kernels::FrozenLinearForward : kernels::FrozenLinearBackward, p),
          .torch = [=, weight = TorchWeight(o, kind)] {
            at::mm(x, forward ? weight().t() : weight());
          }};
}

}  // namespace

std::vector<Row> WeightRows() {
  using enum FrozenKind;
  return {
      {"QuantizeNf4", QuantizeNf4},
      {"DequantizeNf4", DequantizeNf4},
      {"QuantizeInt8Weight", QuantizeInt8},
      {"DequantizeInt8Weight", DequantizeInt8},
      {"FrozenLinearForward, NF4", [](Operands& o) { return FrozenLinear(o, kNf4, true); }},
      {"FrozenLinearForward, int8", [](Operands& o) { return FrozenLinear(o, kInt8, true); }},
      {"FrozenLinearBackward, NF4", [](Operands& o) { return FrozenLinear(o, kNf4, false); }},
      {"FrozenLinearBackward, int8", [](Operands& o) { return FrozenLinear(o, kInt8, false); }},
  };
}

}  // namespace snug::bench
