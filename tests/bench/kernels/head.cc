// The head's loss, the tokens that it is taken of, and the softmax of scores.
#include "kernels/cross_entropy.h"
#include "kernels/softmax.h"
#include "kernels/target_loss.h"
#include "kernels/valid_tokens.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

// Eight of an operand's rows are one of the logits: a vocabulary of 32,768 at the usual width.
constexpr int64_t kWiden = 8;
constexpr int64_t kNumbers = 8;  // Of a document.

Case CrossEntropy(Operands& o, bool with_gradient) {
  const int64_t N = (o.N + kWiden - 1) / kWiden, V = kWiden * o.C;
  const int64_t bytes = N * V * kernels::SizeOf(o.dtype);
  const at::Tensor logits = o.Random({N, V}), loss = o.Empty({N}, at::kDouble);
  const at::Tensor labels = o.Keep(at::randint(0, V, {N}, o.options(at::kLong)));
  const at::Tensor one = o.Ones({}, o.type());
  kernels::CrossEntropyParams p = {.logits = logits.data_ptr(),
                                   .labels = labels.data_ptr(),
                                   .row_loss = loss.data_ptr<double>(),
                                   .N = N,
                                   .V = V,
                                   .logits_stride = V,
                                   .dlogits_stride = V,
                                   .dtype = o.dtype,
                                   .label_type = kernels::IndexType::kI64};
  if (with_gradient) p.dlogits = o.Empty({N, V}, o.type()).data_ptr();
  return {.bytes = with_gradient ? 2 * bytes : bytes,
          .own = Call(kernels::CrossEntropy, p),
          .torch = [=] {
            const at::Tensor log_p = at::log_softmax(logits, 1);
            const auto [sum, weight] =
                at::nll_loss_forward(log_p, labels, std::nullopt, at::Reduction::Sum, -100);
            if (!with_gradient) return;
            const at::Tensor d = at::nll_loss_backward(one, log_p, labels, std::nullopt,
                                                       at::Reduction::Sum, -100, weight);
            at::_log_softmax_backward_data(d, log_p, 1, log_p.scalar_type());
          }};
}

Case TargetLoss(Operands& o, kernels::TargetLossKind kind) {
  const int64_t V = kNumbers, N = o.elements() / V;
  const at::Tensor logits = o.Random({N, V}), gradient = o.Empty({N, V}, o.type());
  const at::Tensor targets = o.Ones({N, V}, at::kFloat), loss = o.Empty({N}, at::kDouble);
  const at::Tensor same = o.Ones({N, V}, o.type()), one = o.Ones({}, o.type());
  return {.bytes = N * V * (2 * kernels::SizeOf(o.dtype) + 4),
          .own = Call(kernels::TargetLoss, {.logits = logits.data_ptr(),
                                            .dlogits = gradient.data_ptr(),
                                            .targets = Floats(targets),
                                            .row_loss = loss.data_ptr<double>(),
                                            .N = N,
                                            .V = V,
                                            .logits_stride = V,
                                            .dlogits_stride = V,
                                            .targets_stride = V,
                                            .dtype = o.dtype,
                                            .kind = kind}),
          .torch = [=] {
            if (kind == kernels::TargetLossKind::kSquare) {
              at::mse_loss(logits, same);
              at::mse_loss_backward(one, logits, same, at::Reduction::Mean);
            } else {
              at::binary_cross_entropy_with_logits(logits, same);
              at::sigmoid(logits).sub_(same);
            }
          }};
}

// As many labels as a step has, not as an operand has elements.
Case ValidTokens(Operands& o) {
  const int64_t N = 16 * o.N;
  const at::Tensor labels = o.Keep(at::randint(-100, -98, {N}, o.options(at::kInt)));
  const at::Tensor index = o.Empty({N}, at::kInt), count = o.Empty({1}, at::kLong);
  return {.bytes = 4 * N + 2 * N,
          .own = Call(kernels::ValidTokens, {.labels = labels.data_ptr(),
                                             .index = Ints(index),
                                             .count = count.data_ptr<int64_t>(),
                                             .N = N}),
          .torch = [=] { at::nonzero(labels != -100); }};
}

Case SoftmaxForward(Operands& o) {
  const at::Tensor x = o.Random();
  at::Tensor p = o.Empty();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::SoftmaxForward, {.x = x.data_ptr(),
                                                .p = p.data_ptr(),
                                                .N = o.N,
                                                .C = o.C,
                                                .x_stride = o.C,
                                                .p_stride = o.C,
                                                .dtype = o.dtype}),
          .torch = [=]() mutable { at::_softmax_out(p, x, 1, false); }};
}

Case SoftmaxBackward(Operands& o, bool from_codes) {
  const at::Tensor p = o.Keep(at::softmax(o.Random(), 1)), dp = o.Random();
  const at::Tensor ranges = o.Ones({2}, at::kFloat);
  at::Tensor dx = o.Empty();
  kernels::SoftmaxBackwardParams params = {.dp = dp.data_ptr(),
                                           .dx = dx.data_ptr(),
                                           .N = o.N,
                                           .C = o.C,
                                           .p_stride = o.C,
                                           .codes_stride = o.C,
                                           .dp_stride = o.C,
                                           .dx_stride = o.C,
                                           .dtype = o.dtype};
  if (from_codes) {
    params.codes = Bytes(o.Ones({o.N, o.C}, at::kByte));
    params.step = Floats(ranges);
    params.minimum = Floats(ranges) + 1;
  } else {
    params.p = p.data_ptr();
  }
  return {
      .bytes = from_codes ? 2 * o.bytes() + o.elements() : 3 * o.bytes(),
      .own = Call(kernels::SoftmaxBackward, params),
      .torch = [=]() mutable { at::_softmax_backward_data_out(dx, dp, p, 1, p.scalar_type()); }};
}

}  // namespace

std::vector<Row> HeadRows() {
  return {
      {"CrossEntropy, loss", [](Operands& o) { return CrossEntropy(o, false); }},
      {"CrossEntropy, loss and gradient", [](Operands& o) { return CrossEntropy(o, true); }},
      {"TargetLoss, numbers",
       [](Operands& o) { return TargetLoss(o, kernels::TargetLossKind::kSquare); }},
      {"TargetLoss, several labels",
       [](Operands& o) { return TargetLoss(o, kernels::TargetLossKind::kBinary); }},
      {"ValidTokens", ValidTokens},
      {"SoftmaxForward", SoftmaxForward},
      {"SoftmaxBackward", [](Operands& o) { return SoftmaxBackward(o, false); }},
      {"SoftmaxBackward, from codes", [](Operands& o) { return SoftmaxBackward(o, true); }},
  };
}

}  // namespace snug::bench
