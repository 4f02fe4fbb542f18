// The bias on the CPU: rows among threads forward, columns among threads backward.
#include "kernels/bias.h"

#include <cstring>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(BiasBackwardColumns, void(const BiasBackwardParams&, Range));

Error BiasForward(const BiasForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").PerRow(p.b, "b").Rows(p.y, "y", p.y_stride, "y_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::BiasForward, p, stream);
  const int64_t element = SizeOf(p.dtype);
  char* y = static_cast<char*>(p.y);
  cpu::ParallelFor(p.N, p.N * p.C * element, [&](Range rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      memcpy(y + i * p.y_stride * element, p.b, p.C * element);
    }
  });
  return {};
}

Error BiasBackward(const BiasBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.dy, "dy", p.dy_stride, "dy_stride")
      .Pointer(p.db, "db")
      .That(stream == nullptr || p.workspace != nullptr, ErrorCode::kNullPointer, "workspace");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::BiasBackward, p, stream);
  cpu::ParallelColumns(p.C, p.N * p.C * SizeOf(p.dtype),
                       [&](Range columns) { BiasBackwardColumns(p, columns); });
  return {};
}

}  // namespace snug::kernels
