// Norms with xhat as codes on the CPU: checks, and division of rows (of blocks of columns, for
// sums) among threads.
#include "kernels/quantized_norm.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/norm_check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantized_check.h"

namespace snug::kernels {

SNUG_VERSIONS(QuantizedNormForwardRows, void(const QuantizedNormForwardParams&, Range));
SNUG_VERSIONS(QuantizedNormBackwardRows, void(const QuantizedNormBackwardParams&, Range));
SNUG_VERSIONS(QuantizedNormSumsBlocks, void(const QuantizedNormSumsParams&, Range));

namespace {

constexpr int64_t kCostOfElement = 16;  // Of codes, in bytes of traffic.

cpu::Check CheckForward(const QuantizedNormForwardParams& p) {
  cpu::Check check(p.norm.N, p.norm.C);
  cpu::CheckNormInput(p.norm, check);
  check.That(p.norm.xhat == nullptr, ErrorCode::kBadValue, "norm.xhat")
      .That(p.norm.round_xhat, ErrorCode::kBadValue, "round_xhat")
      .PerRow(p.norm.r, "r");
  cpu::CheckNormOutput(p.norm, check);
  cpu::CheckQuantized(p.xhat, p.norm.N, p.norm.C, check);
  cpu::CheckDither(p.dither, p.xhat, p.norm.C, check);
  return check;
}

cpu::Check CheckBackward(const QuantizedNormBackwardParams& p) {
  cpu::Check check(p.norm.N, p.norm.C);
  cpu::CheckNormGradient(p.norm, check);
  check.That(p.norm.xhat == nullptr, ErrorCode::kBadValue, "norm.xhat")
      .That(p.norm.x == nullptr, ErrorCode::kBadValue, "norm.x");
  cpu::CheckQuantized(p.xhat, p.norm.N, p.norm.C, check);
  return check;
}

cpu::Check CheckSums(const QuantizedNormSumsParams& p, Stream stream) {
  const AffineBackwardParams& affine = p.affine;
  cpu::Check check(affine.N, affine.C);
  check.Type(affine.dtype, "dtype")
      .Rows(affine.dz, "dz", affine.dz_stride, "dz_stride")
      .That(affine.xhat == nullptr, ErrorCode::kBadValue, "affine.xhat")
      .That(affine.dxhat == nullptr, ErrorCode::kBadValue, "affine.dxhat")
      .That(stream == nullptr || affine.workspace != nullptr, ErrorCode::kNullPointer, "workspace");
  cpu::CheckQuantized(p.xhat, affine.N, affine.C, check);
  return check;
}

// Rows among threads. `loops` is called for a range of them.
template <typename Loops>
void ForRows(int64_t N, int64_t C, DType dtype, Loops loops) {
  cpu::ParallelFor(N, N * C * (2 * SizeOf(dtype) + kCostOfElement), loops);
}

}  // namespace

Error QuantizedNormForward(const QuantizedNormForwardParams& p, Stream stream) {
  const cpu::Check check = CheckForward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedNormForward, p, stream);
  ForRows(p.norm.N, p.norm.C, p.norm.dtype, [&](Range rows) { QuantizedNormForwardRows(p, rows); });
  return {};
}

Error QuantizedNormBackward(const QuantizedNormBackwardParams& p, Stream stream) {
  const cpu::Check check = CheckBackward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedNormBackward, p, stream);
  ForRows(p.norm.N, p.norm.C, p.norm.dtype,
          [&](Range rows) { QuantizedNormBackwardRows(p, rows); });
  return {};
}

Error QuantizedNormSums(const QuantizedNormSumsParams& p, Stream stream) {
  const cpu::Check check = CheckSums(p, stream);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedNormSums, p, stream);
  cpu::ParallelFor(RangeBlocks(p.affine.C), p.affine.N * p.affine.C * (SizeOf(p.affine.dtype) + 1),
                   [&](Range blocks) { QuantizedNormSumsBlocks(p, blocks); });
  return {};
}

}  // namespace snug::kernels
