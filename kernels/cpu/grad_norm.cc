// Sum of squares on the CPU: spans in parallel, their sums added in order.
#include "kernels/grad_norm.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/tensor_list.h"

namespace snug::kernels {

SNUG_VERSIONS(SumSquaresElements, double(const NormTensor&, Range));

Error SumSquares(const SumSquaresParams& p, Stream stream) {
  cpu::Check check(p.count, 1, "", "count");
  check.PerRow(p.tensors, "tensors").Pointer(p.sum_squares, "sum_squares");
  for (int64_t i = 0; check.ok() && i < p.count; ++i) {
    check.That(p.tensors[i].n >= 0, ErrorCode::kBadShape, "n")
        .That(p.tensors[i].x != nullptr || p.tensors[i].n == 0, ErrorCode::kNullPointer, "x")
        .Type(p.tensors[i].dtype, "dtype");
  }
  if (stream != nullptr) check.Workspace(p.workspace);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::SumSquares, p, stream);
  double sum = 0.0, sums[cpu::kGroupSpans];
  cpu::ForSpans(
      p.tensors, p.count,
      [&](const cpu::Span& span, int64_t i) {
        sums[i] = SumSquaresElements(p.tensors[span.tensor], span.elements);
      },
      [&](int64_t spans) {
        for (int64_t i = 0; i < spans; ++i) sum += sums[i];
      });
  *p.sum_squares = sum;
  return {};
}

Error ClipFactor(const ClipFactorParams& p, Stream stream) {
  cpu::Check check(1, 1);
  check.Pointer(p.sum_squares, "sum_squares")
      .That(p.max_norm > 0.0, ErrorCode::kBadValue, "max_norm")
      .Pointer(p.factor, "factor");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::ClipFactor, p, stream);
  *p.factor = ClipFactorOf(*p.sum_squares, p.max_norm);
  return {};
}

}  // namespace snug::kernels
