// Norms with xhat as codes on the CPU: checks, and division of rows (of blocks of columns, for
// sums) among threads.
#include "kernels/quantized_norm.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantized_check.h"

namespace snug::kernels {

SNUG_VERSIONS(QuantizedNormForwardRows, void(const QuantizedNormForwardParams&, Range));
SNUG_VERSIONS(QuantizedNormBackwardRows, void(const QuantizedNormBackwardParams&, Range));
SNUG_VERSIONS(QuantizedNormSumsBlocks, void(const QuantizedNormSumsParams&, Range));

namespace {

constexpr int64_t kCostOfElement = 16;  // Of codes, in bytes of traffic.

cpu::Check CheckForward(const QuantizedNormForwardParams& p) {
  const NormalizeForwardParams& norm = p.norm;
  cpu::Check check(norm.N, norm.C);
  check.Type(norm.dtype, "dtype")
      .Type(norm.gamma_dtype, "gamma_dtype")
      .Rows(norm.x, "x", norm.x_stride, "x_stride")
      .That(norm.xhat == nullptr, ErrorCode::kBadValue, "norm.xhat")
      .That(norm.round_xhat, ErrorCode::kBadValue, "round_xhat")
      .Rows(norm.z, "z", norm.z_stride, "z_stride")
      .PerRow(norm.r, "r")
      .PerRow(norm.gamma, "gamma")
      .That(norm.eps >= 0.0f, ErrorCode::kBadValue, "eps")
      .That(norm.norm <= Norm::kLayer, ErrorCode::kBadValue, "norm");
  if (norm.residual != nullptr) {
    check.Rows(norm.residual, "residual", norm.residual_stride, "residual_stride")
        .Rows(norm.h, "h", norm.h_stride, "h_stride");
  }
  cpu::CheckQuantized(p.xhat, norm.N, norm.C, check);
  cpu::CheckDither(p.dither, p.xhat, norm.C, check);
  return check;
}

}  // namespace

Error QuantizedNormForward(const QuantizedNormForwardParams& p, Stream stream) {
  const cpu::Check check = CheckForward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedNormForward, p, stream);
  cpu::ParallelFor(p.norm.N, p.norm.N * p.norm.C * (2 * SizeOf(p.norm.dtype) + kCostOfElement),
                   [&](Range rows) { QuantizedNormForwardRows(p, rows); });
  return {};
}

Error QuantizedNormBackward(const QuantizedNormBackwardParams& p, Stream stream) {
  const NormalizeBackwardParams& norm = p.norm;
  cpu::Check check(norm.N, norm.C);
  check.Type(norm.dtype, "dtype")
      .Rows(norm.dxhat, "dxhat", norm.dxhat_stride, "dxhat_stride")
      .That(norm.xhat == nullptr, ErrorCode::kBadValue, "norm.xhat")
      .That(norm.x == nullptr, ErrorCode::kBadValue, "norm.x")
      .PerRow(norm.r, "r")
      .Rows(norm.dx, "dx", norm.dx_stride, "dx_stride")
      .That(norm.norm <= Norm::kLayer, ErrorCode::kBadValue, "norm");
  if (norm.gamma != nullptr) check.Type(norm.gamma_dtype, "gamma_dtype");
  cpu::CheckQuantized(p.xhat, norm.N, norm.C, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedNormBackward, p, stream);
  cpu::ParallelFor(norm.N, norm.N * norm.C * (2 * SizeOf(norm.dtype) + kCostOfElement),
                   [&](Range rows) { QuantizedNormBackwardRows(p, rows); });
  return {};
}

Error QuantizedNormSums(const QuantizedNormSumsParams& p, Stream stream) {
  const AffineBackwardParams& affine = p.affine;
  cpu::Check check(affine.N, affine.C);
  check.Type(affine.dtype, "dtype")
      .Rows(affine.dz, "dz", affine.dz_stride, "dz_stride")
      .That(affine.xhat == nullptr, ErrorCode::kBadValue, "affine.xhat")
      .That(affine.dxhat == nullptr, ErrorCode::kBadValue, "affine.dxhat")
      .That(stream == nullptr || affine.workspace != nullptr, ErrorCode::kNullPointer, "workspace");
  cpu::CheckQuantized(p.xhat, affine.N, affine.C, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedNormSums, p, stream);
  cpu::ParallelFor(RangeBlocks(affine.C), affine.N * affine.C * (SizeOf(affine.dtype) + 1),
                   [&](Range blocks) { QuantizedNormSumsBlocks(p, blocks); });
  return {};
}

}  // namespace snug::kernels
