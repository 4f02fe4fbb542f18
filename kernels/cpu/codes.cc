// Backward from codes on the CPU: checks, and division of rows among threads.
#include "kernels/codes.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(CodeBackwardRows, void(const CodeBackwardParams&, Range));

Error CodeBackward(const CodeBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.dy, "dy", p.dy_stride, "dy_stride")
      .That(p.bits == 1 || p.bits == 2, ErrorCode::kBadValue, "bits")
      .Bytes(p.codes, "codes", p.code_stride, p.bits, "code_stride")
      .Rows(p.dx, "dx", p.dx_stride, "dx_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::CodeBackward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { CodeBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
