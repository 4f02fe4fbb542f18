// A norm and its linear taken together, on the CPU: checks, division among threads, and the merge,
// which happens once a weight and needs no vectors.
#include "kernels/norm_merge.h"

#include "kernels/by_type.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(FoldNormColumns, void(const FoldNormParams&, Range));

namespace {

double ElementOf(const void* x, DType dtype, int64_t i) {
  return ByType(dtype,
                [&](auto t) -> double { return ToFloat(static_cast<const decltype(t)*>(x)[i]); });
}

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

template <typename T>
void MergeRow(const MergeNormParams& p, int64_t i, bool undo) {
  const T* w = static_cast<const T*>(p.w) + i * p.w_stride;
  T* merged = static_cast<T*>(p.merged_w) + i * p.merged_w_stride;
  double dot = 0.0;  // Of beta with the weight that stands before the affine step.
  for (int64_t c = 0; c < p.C; ++c) {
    const double factor = static_cast<double>(p.offset) + ElementOf(p.gamma, p.gamma_dtype, c);
    const double element = ToFloat(w[c]), result = undo ? element / factor : element * factor;
    if (p.beta != nullptr) {
      dot += (undo ? result : element) * ElementOf(p.beta, p.gamma_dtype, c);
    }
    merged[c] = Narrow<T>(static_cast<float>(result));
  }
  if (p.merged_b == nullptr) return;
  const double b = p.b == nullptr ? 0.0 : ElementOf(p.b, p.dtype, i);
  static_cast<T*>(p.merged_b)[i] = Narrow<T>(static_cast<float>(undo ? b - dot : b + dot));
}

void MergeRows(const MergeNormParams& p, bool undo) {
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype), [&](Range rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      ByType(p.dtype, [&](auto t) { MergeRow<decltype(t)>(p, i, undo); });
    }
  });
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
