// Quantising on the CPU: checks, and division of rows (of parts of groups, for ranges) among
// threads.
#include "kernels/quantize.h"

#include <algorithm>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantized_check.h"
#include "kernels/quantize_code.h"

namespace snug::kernels {

SNUG_VERSIONS(ReduceRanges, void(const UpdateRangesParams&, Range));
SNUG_VERSIONS(QuantizeRows, void(const QuantizeParams&, Range));
SNUG_VERSIONS(DequantizeRows, void(const DequantizeParams&, Range));

namespace {

constexpr int64_t kCostOfElement = 8;  // Of drawing and rounding, in bytes of traffic.

// The parts' results become the group's.
void FinishGroup(const UpdateRangesParams& p, int64_t group, int64_t groups) {
  const auto* units = static_cast<const float*>(p.workspace);
  float all[3];
  std::copy_n(units + 3 * group, 3, all);
  for (int64_t part = 1; part < RangeParts(p.N, groups); ++part) {
    const float* unit = units + 3 * (part * groups + group);
    all[0] = std::min(all[0], unit[0]);
    all[1] = std::max(all[1], unit[1]);
    all[2] += unit[2];
  }
  UpdateGroup(p, group, all);
}

}  // namespace

Error UpdateRanges(const UpdateRangesParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .That(p.bits <= CodeBits::k4, ErrorCode::kBadDType, "bits")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .That((p.alpha == nullptr) == (p.beta == nullptr), ErrorCode::kNullPointer, "beta")
      .That((p.alpha == nullptr) == (p.updates == nullptr), ErrorCode::kNullPointer, "updates")
      .PerRow(p.ranges, "ranges")
      .PerRow(p.workspace, "workspace")
      .That(p.decay >= 0.0f && p.decay < 1.0f, ErrorCode::kBadValue, "decay");
  cpu::CheckGrouping(p.grouping, p.C, check);
  if (!check.ok()) return check.error();
  if (p.N == 0) return {};
  if (stream != nullptr) return cpu::OnStream(cuda::UpdateRanges, p, stream);
  const int64_t groups = GroupsOf(p.grouping, p.C);
  cpu::ParallelFor(RangeParts(p.N, groups) * groups, p.N * p.C * SizeOf(p.dtype),
                   [&](Range units) { ReduceRanges(p, units); });
  for (int64_t group = 0; group < groups; ++group) FinishGroup(p, group, groups);
  return {};
}

Error Quantize(const QuantizeParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").Rows(p.x, "x", p.x_stride, "x_stride");
  cpu::CheckQuantized(p.to, p.N, p.C, check);
  cpu::CheckDither(p.dither, p.to, p.C, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::Quantize, p, stream);
  cpu::ParallelFor(p.N, p.N * p.C * (SizeOf(p.dtype) + kCostOfElement),
                   [&](Range rows) { QuantizeRows(p, rows); });
  return {};
}

Error Dequantize(const DequantizeParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").Rows(p.y, "y", p.y_stride, "y_stride");
  cpu::CheckQuantized(p.from, p.N, p.C, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::Dequantize, p, stream);
  cpu::ParallelFor(p.N, p.N * p.C * (SizeOf(p.dtype) + 1),
                   [&](Range rows) { DequantizeRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
