// Token embedding on the CPU: rows among threads forward, columns among threads backward.
#include "kernels/embedding.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(EmbeddingForwardRows, void(const EmbeddingForwardParams&, Range));
SNUG_VERSIONS(EmbeddingBackwardColumns, void(const EmbeddingBackwardParams&, Range));

Error EmbeddingForward(const EmbeddingForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .PerRow(p.ids, "ids")
      .Table(p.W, "W", p.W_stride, "W_stride")
      .That(p.V >= 1 || p.N == 0, ErrorCode::kBadShape, "V")
      .Rows(p.y, "y", p.y_stride, "y_stride");
  if (check.ok() && stream == nullptr) {
    check.That(cpu::IndicesInRange(p.ids, IndexType::kI32, p.N, p.V), ErrorCode::kBadIndex, "ids");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::EmbeddingForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { EmbeddingForwardRows(p, rows); });
  return {};
}

Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .PerRow(p.ids, "ids")
      .Rows(p.dy, "dy", p.dy_stride, "dy_stride")
      .Table(p.dW, "dW", p.dW_stride, "dW_stride")
      .That(p.V >= 1 || p.N == 0, ErrorCode::kBadShape, "V");
  if (stream != nullptr && p.N > 0) check.Workspace(p.workspace);
  if (check.ok() && stream == nullptr) {
    check.That(cpu::IndicesInRange(p.ids, IndexType::kI32, p.N, p.V), ErrorCode::kBadIndex, "ids");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::EmbeddingBackward, p, stream);
  cpu::ParallelColumns(p.C, p.N * p.C * (SizeOf(p.dtype) + 8),
                       [&](Range columns) { EmbeddingBackwardColumns(p, columns); });
  return {};
}

}  // namespace snug::kernels
