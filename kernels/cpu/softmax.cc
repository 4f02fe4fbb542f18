// Softmax of attention scores on the CPU: checks, and division of rows among threads.
#include "kernels/softmax.h"

#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(SoftmaxForwardRows, void(const SoftmaxForwardParams&, Range));
SNUG_VERSIONS(SoftmaxBackwardRows, void(const SoftmaxBackwardParams&, Range));
namespace {

void CheckMask(cpu::Check& check, const ScoreMask& mask, int64_t N, int64_t C) {
  check.That(mask.heads >= 1, ErrorCode::kBadShape, "mask.heads")
      .That(mask.queries >= 1, ErrorCode::kBadShape, "mask.queries")
      .That(mask.window >= 0 && (mask.window == 0 || mask.causal), ErrorCode::kBadValue,
            "mask.window");
  if (!check.ok()) return;  // From here on sizes are good.
  const int64_t rows = mask.heads * mask.queries;
  check.That(N % rows == 0, ErrorCode::kBadShape, "N")
      .That(mask.keys == nullptr || mask.keys_stride >= C || N <= rows, ErrorCode::kBadStride,
            "mask.keys_stride");
}

}  // namespace

Error SoftmaxForward(const SoftmaxForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.p, "p", p.p_stride, "p_stride")
      .That(std::isfinite(p.scale), ErrorCode::kBadValue, "scale")
      .That(p.softcap >= 0.0f, ErrorCode::kBadValue, "softcap");
  CheckMask(check, p.mask, p.N, p.C);
  if (p.bias != nullptr) {
    check.Type(p.bias_dtype, "bias_dtype")
        .That(p.bias_stride >= p.C || p.mask.heads * p.mask.queries == 1, ErrorCode::kBadStride,
              "bias_stride");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::SoftmaxForward, p, stream);
  cpu::ParallelFor(p.N, 4 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { SoftmaxForwardRows(p, rows); });
  return {};
}

Error SoftmaxBackward(const SoftmaxBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype");
  if (p.codes == nullptr) {
    check.Rows(p.p, "p", p.p_stride, "p_stride");
  } else {
    check.That(p.p == nullptr, ErrorCode::kBadValue, "p")
        .Rows(p.codes, "codes", p.codes_stride, "codes_stride")
        .PerRow(p.step, "step")
        .PerRow(p.minimum, "minimum")
        .That(p.groups >= 1, ErrorCode::kBadShape, "groups")
        .That(p.rows_per_group >= 1, ErrorCode::kBadShape, "rows_per_group");
  }
  check.Rows(p.dp, "dp", p.dp_stride, "dp_stride")
      .Rows(p.dx, "dx", p.dx_stride, "dx_stride")
      .That(std::isfinite(p.scale), ErrorCode::kBadValue, "scale")
      .That(p.softcap >= 0.0f, ErrorCode::kBadValue, "softcap");
  if (p.softcap > 0.0f) check.Rows(p.x, "x", p.x_stride, "x_stride");
  CheckMask(check, p.mask, p.N, p.C);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::SoftmaxBackward, p, stream);
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { SoftmaxBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
