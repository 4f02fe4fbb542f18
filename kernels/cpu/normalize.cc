// Normalisation of rows on the CPU: checks, and division of rows among threads.
#include "kernels/normalize.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/norm_check.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(NormalizeForwardRows, void(const NormalizeForwardParams&, Range));
SNUG_VERSIONS(NormalizeBackwardRows, void(const NormalizeBackwardParams&, Range));

namespace {

cpu::Check CheckForward(const NormalizeForwardParams& p) {
  cpu::Check check(p.N, p.C);
  cpu::CheckNormInput(p, check);
  if (p.xhat != nullptr || p.z == nullptr) {
    check.Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride").PerRow(p.r, "r");
  }
  if (p.z != nullptr) {
    cpu::CheckNormOutput(p, check);
    check.That(p.z != p.xhat, ErrorCode::kBadValue, "z");
  }
  return check;
}

cpu::Check CheckBackward(const NormalizeBackwardParams& p) {
  cpu::Check check(p.N, p.C);
  cpu::CheckNormGradient(p, check);
  if (p.x == nullptr || p.xhat != nullptr) check.Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride");
  if (p.xhat == nullptr) check.Rows(p.x, "x", p.x_stride, "x_stride");
  return check;
}

}  // namespace

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream) {
  const cpu::Check check = CheckForward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::NormalizeForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { NormalizeForwardRows(p, rows); });
  return {};
}

Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream) {
  const cpu::Check check = CheckBackward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::NormalizeBackward, p, stream);
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { NormalizeBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
