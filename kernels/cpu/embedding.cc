// Token embedding on the CPU: rows among threads forward, columns among threads backward.
#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

Error EmbeddingForward(const EmbeddingForwardParams& p, Stream stream) {
  cpu::Check check(stream, p.N, p.C);
  check.Type(p.dtype, "dtype")
      .PerRow(p.ids, "ids")
      .Table(p.W, "W", p.W_stride, "W_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride");
  if (check.ok()) {
    check.That(cpu::IndicesInRange(p.ids, IndexType::kI32, p.N, p.V), ErrorCode::kBadIndex, "ids");
  }
  if (!check.ok()) return check.error();
  const int64_t element = SizeOf(p.dtype);
  const char* W = static_cast<const char*>(p.W);
  char* y = static_cast<char*>(p.y);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * element, [&](Range rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      memcpy(y + i * p.y_stride * element, W + p.ids[i] * p.W_stride * element, p.C * element);
    }
  });
  return {};
}

Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream) {
  cpu::Check check(stream, p.N, p.C);
  check.Type(p.dtype, "dtype")
      .PerRow(p.ids, "ids")
      .Rows(p.dy, "dy", p.dy_stride, "dy_stride")
      .Table(p.dW, "dW", p.dW_stride, "dW_stride");
  if (check.ok()) {
    check.That(cpu::IndicesInRange(p.ids, IndexType::kI32, p.N, p.V), ErrorCode::kBadIndex, "ids");
  }
  if (!check.ok()) return check.error();
  cpu::ParallelColumns(p.C, p.N * p.C * (SizeOf(p.dtype) + 8),
                       [&](Range columns) { BestLoops().embedding_backward(p, columns); });
  return {};
}

}  // namespace snug::kernels
