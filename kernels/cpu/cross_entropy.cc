// Softmax cross-entropy on the CPU: checks, division of rows among threads, the sum in their order.
#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(CrossEntropyRows, void(const CrossEntropyParams&, Range));
namespace {

// A label in [0, V) or the ignored one, or none where the row has weight 0.
bool LabelsAreGood(const CrossEntropyParams& p) {
  for (int64_t i = 0; i < p.N; ++i) {
    const int64_t label = cpu::IndexAt(p.labels, p.label_type, i);
    if (label == p.ignore_label) continue;
    const bool masked = p.weights != nullptr && p.weights[i] == 0.0f;
    if (label >= p.V || (label < 0 && !masked)) return false;
    if (p.second_labels != nullptr && cpu::IndexAt(p.second_labels, p.label_type, i) >= p.V)
      return false;
  }
  return true;
}

}  // namespace

Error CrossEntropy(const CrossEntropyParams& p, Stream stream) {
  cpu::Check check(p.N, p.V, "V");
  check.Type(p.dtype, "dtype")
      .Type(p.label_type, "label_type")
      .Rows(p.logits, "logits", p.logits_stride, "logits_stride")
      .PerRow(p.labels, "labels")
      .PerRow(p.row_loss, "row_loss")
      .That(p.softcap >= 0.0f, ErrorCode::kBadValue, "softcap")
      .That(p.label_smoothing >= 0.0f && p.label_smoothing < 1.0f, ErrorCode::kBadValue,
            "label_smoothing")
      .That(std::isfinite(p.z_loss) && p.z_loss >= 0.0f, ErrorCode::kBadValue, "z_loss");
  if (p.dlogits != nullptr) {
    check.Rows(p.dlogits, "dlogits", p.dlogits_stride, "dlogits_stride");
  }
  if (p.second_labels != nullptr) check.PerRow(p.shares, "shares");
  if (check.ok() && stream == nullptr) check.That(LabelsAreGood(p), ErrorCode::kBadIndex, "labels");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::CrossEntropy, p, stream);
  cpu::ParallelFor(p.N, 4 * p.N * p.V * SizeOf(p.dtype),
                   [&](Range rows) { CrossEntropyRows(p, rows); });
  if (p.loss_sum == nullptr) return {};
  for (int64_t i = 0; i < p.N; ++i) *p.loss_sum += p.row_loss[i];
  return {};
}

}  // namespace snug::kernels
