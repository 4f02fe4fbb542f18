// A norm and its linear taken together, on the CPU: checks, and division among threads.
#include "kernels/norm_merge.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(FoldNormColumns, void(const FoldNormParams&, Range));
SNUG_VERSIONS(MergeNormRows, void(const MergeNormParams&, bool, Range));

namespace {

cpu::Check CheckMerge(const MergeNormParams& p) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.w, "w", p.w_stride, "w_stride")
      .PerRow(p.gamma, "gamma")
      .Rows(p.merged_w, "merged_w", p.merged_w_stride, "merged_w_stride");
  if (p.b != nullptr || p.beta != nullptr) check.PerRow(p.merged_b, "merged_b");
  return check;
}

void MergeRows(const MergeNormParams& p, bool undo) {
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { MergeNormRows(p, undo, rows); });
}

}  // namespace

Error MergeNorm(const MergeNormParams& p, Stream stream) {
  const cpu::Check check = CheckMerge(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::MergeNorm, p, stream);
  MergeRows(p, false);
  return {};
}

Error UnmergeNorm(const MergeNormParams& p, Stream stream) {
  const cpu::Check check = CheckMerge(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::UnmergeNorm, p, stream);
  MergeRows(p, true);
  return {};
}

Error FoldNorm(const FoldNormParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.gamma_dtype, "gamma_dtype").Rows(p.g, "g", p.g_stride, "g_stride");
  if (p.dbeta != nullptr || (p.dw != nullptr && p.beta != nullptr)) check.PerRow(p.s, "s");
  if (p.dw != nullptr) {
    check.PerRow(p.gamma, "gamma")
        .Rows(p.dw, "dw", p.dw_stride, "dw_stride")
        .That(!p.accumulate || p.dw != p.g, ErrorCode::kBadValue, "dw");
  }
  if (p.dgamma != nullptr || p.dbeta != nullptr) {
    check.Type(p.w_dtype, "w_dtype").Rows(p.w, "w", p.w_stride, "w_stride");
    if (stream != nullptr) check.Pointer(p.workspace, "workspace");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::FoldNorm, p, stream);
  cpu::ParallelColumns(p.C, 3 * p.N * p.C * SizeOf(DType::kF32),
                       [&](Range columns) { FoldNormColumns(p, columns); });
  return {};
}

}  // namespace snug::kernels
