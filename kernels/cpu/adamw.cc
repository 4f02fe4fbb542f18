// AdamW on the CPU.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/adamw.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/tensor_list.h"

namespace snug::kernels {

SNUG_VERSIONS(AdamWElements, void(const AdamWTensor&, const AdamWScalars&, Range));
namespace {

AdamWScalars ScalarsOf(const AdamWParams& p) {
  const double step = static_cast<double>(p.step);
  const double correction1 = 1.0 - std::pow(p.beta1, step);
  const double correction2 = 1.0 - std::pow(p.beta2, step);
  return {.grad_scale = p.grad_scale,
          .decay = static_cast<float>(1.0 - p.lr * p.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .beta2 = static_cast<float>(p.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .minus_step_size = static_cast<float>(-(p.lr / correction1)),
          .sqrt_correction2 = static_cast<float>(std::sqrt(correction2)),
          .eps = static_cast<float>(p.eps)};
}

Error CheckAdamW(const AdamWParams& p) {
  cpu::Check check(p.count, 1);
  check.PerRow(p.tensors, "tensors")
      .That(p.step >= 1, ErrorCode::kBadValue, "step")
      .That(p.lr >= 0.0, ErrorCode::kBadValue, "lr")
      .That(p.beta1 >= 0.0 && p.beta1 < 1.0, ErrorCode::kBadValue, "beta1")
      .That(p.beta2 >= 0.0 && p.beta2 < 1.0, ErrorCode::kBadValue, "beta2")
      .That(p.eps >= 0.0, ErrorCode::kBadValue, "eps")
      .That(p.weight_decay >= 0.0, ErrorCode::kBadValue, "weight_decay");
  for (int64_t i = 0; check.ok() && i < p.count; ++i) {
    const AdamWTensor& t = p.tensors[i];
    check.That(t.n >= 0, ErrorCode::kBadShape, "n")
        .That(t.p != nullptr || t.n == 0, ErrorCode::kNullPointer, "p")
        .That(t.g != nullptr || t.n == 0, ErrorCode::kNullPointer, "g")
        .That(t.m != nullptr || t.n == 0, ErrorCode::kNullPointer, "m")
        .That(t.v != nullptr || t.n == 0, ErrorCode::kNullPointer, "v");
  }
  return check.error();
}

}  // namespace

Error AdamW(const AdamWParams& p, Stream stream) {
  if (const Error error = CheckAdamW(p); !error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::AdamW, p, stream);
  const AdamWScalars scalars = ScalarsOf(p);
  cpu::ForSpans(
      p.tensors, p.count,
      [&](const cpu::Span& span, int64_t) {
        AdamWElements(p.tensors[span.tensor], scalars, span.elements);
      },
      [](int64_t) {});
  return {};
}

}  // namespace snug::kernels
