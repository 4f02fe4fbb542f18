// AdamW on the CPU.
#include "kernels/adamw.h"

#include "kernels/adamw_scalars.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/tensor_list.h"

namespace snug::kernels {

SNUG_VERSIONS(AdamWElements, void(const AdamWTensor&, const AdamWScalars&, Range));
SNUG_VERSIONS(AdamWCodedElements, void(const AdamWTensor&, const AdamWScalars&, Range));
namespace {

static_assert(cpu::kSpanElements % kCodeBlock == 0, "a span is whole blocks");

bool IsCoded(const AdamWTensor& tensor) { return tensor.codes.m != nullptr; }

void CheckTensor(const AdamWTensor& t, cpu::Check& check) {
  const auto given = [&](const void* x) { return x != nullptr || t.n == 0; };
  check.That(t.n >= 0, ErrorCode::kBadShape, "n")
      .That(given(t.p), ErrorCode::kNullPointer, "p")
      .That(given(t.g), ErrorCode::kNullPointer, "g")
      .That(t.copy == nullptr || t.copy_dtype == DType::kBF16 || t.copy_dtype == DType::kF16,
            ErrorCode::kBadDType, "copy_dtype");
  if (!IsCoded(t)) {
    check.That(given(t.m), ErrorCode::kNullPointer, "m")
        .That(given(t.v), ErrorCode::kNullPointer, "v");
    return;
  }
  check.That(t.m == nullptr && t.v == nullptr, ErrorCode::kBadValue, "codes")
      .Pointer(t.codes.v, "codes.v")
      .Pointer(t.codes.m_scale, "codes.m_scale")
      .Pointer(t.codes.v_scale, "codes.v_scale");
}

Error CheckAdamW(const AdamWParams& p) {
  cpu::Check check(p.count, 1, "", "count");
  check.PerRow(p.tensors, "tensors")
      .That(p.step >= 1, ErrorCode::kBadValue, "step")
      .That(p.lr >= 0.0, ErrorCode::kBadValue, "lr")
      .That(p.beta1 >= 0.0 && p.beta1 < 1.0, ErrorCode::kBadValue, "beta1")
      .That(p.beta2 >= 0.0 && p.beta2 < 1.0, ErrorCode::kBadValue, "beta2")
      .That(p.eps >= 0.0, ErrorCode::kBadValue, "eps")
      .That(p.weight_decay >= 0.0, ErrorCode::kBadValue, "weight_decay");
  for (int64_t i = 0; check.ok() && i < p.count; ++i) CheckTensor(p.tensors[i], check);
  return check.error();
}

}  // namespace

Error AdamW(const AdamWParams& p, Stream stream) {
  if (const Error error = CheckAdamW(p); !error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::AdamW, p, stream);
  AdamWScalars scalars = ScalarsOf(p);
  if (p.grad_factor != nullptr) scalars.grad_scale *= *p.grad_factor;
  cpu::ForSpans(
      p.tensors, p.count,
      [&](const cpu::Span& span, int64_t) {
        const AdamWTensor& tensor = p.tensors[span.tensor];
        if (IsCoded(tensor)) {
          AdamWCodedElements(tensor, scalars, span.elements);
        } else {
          AdamWElements(tensor, scalars, span.elements);
        }
      },
      [](int64_t) {});
  return {};
}

}  // namespace snug::kernels
