// Losses against targets on the CPU: checks, division of rows among threads, and the rows, whose
// few classes need no loop of vectors.
#include "kernels/target_loss.h"

#include "kernels/by_type.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/target_loss_rules.h"

namespace snug::kernels {
namespace {

template <typename T>
void RowOf(const TargetLossParams& p, int64_t row) {
  const T* x = static_cast<const T*>(p.logits) + row * p.logits_stride;
  T* dx = p.dlogits == nullptr ? nullptr : static_cast<T*>(p.dlogits) + row * p.dlogits_stride;
  const float* targets = p.targets + row * p.targets_stride;
  const double scale =
      static_cast<double>(p.scale) * target_loss::WeightOf(p, row) / static_cast<double>(p.V);
  target_loss::Terms sums;
  for (int64_t v = 0; v < p.V; ++v) {
    const target_loss::Terms terms = target_loss::Of(p.kind, static_cast<double>(ToFloat(x[v])),
                                                     static_cast<double>(targets[v]));
    sums.loss += terms.loss;
    sums.entropy += terms.entropy;
    sums.wrong += terms.wrong;
    if (dx != nullptr) dx[v] = Narrow<T>(static_cast<float>(scale * terms.slope));
  }
  target_loss::PutRow(p, row, sums);
}

}  // namespace

Error TargetLoss(const TargetLossParams& p, Stream stream) {
  cpu::Check check(p.N, p.V, "V");
  check.Type(p.dtype, "dtype")
      .Rows(p.logits, "logits", p.logits_stride, "logits_stride")
      .Rows(p.targets, "targets", p.targets_stride, "targets_stride")
      .PerRow(p.row_loss, "row_loss")
      .That(p.kind <= TargetLossKind::kBinary, ErrorCode::kBadValue, "kind");
  if (p.dlogits != nullptr) {
    check.Rows(p.dlogits, "dlogits", p.dlogits_stride, "dlogits_stride");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::TargetLoss, p, stream);
  cpu::ParallelFor(p.N, 16 * p.N * p.V * SizeOf(p.dtype), [&](Range rows) {
    ByType(p.dtype, [&](auto t) {
      for (int64_t row = rows.begin; row < rows.end; ++row) RowOf<decltype(t)>(p, row);
    });
  });
  return {};
}

}  // namespace snug::kernels
