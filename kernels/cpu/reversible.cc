// Reversible streams on the CPU: checks, division of rows among threads, and whether any of them
// overflowed.
#include "kernels/reversible.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(FixedAddRows, bool(const FixedAddParams&, Range));
SNUG_VERSIONS(FixedShiftAddRows, bool(const FixedShiftAddParams&, Range));
namespace {

// Threads may all write the same value.
void Tell(bool overflow, int32_t* flag) {
  if (!overflow || flag == nullptr) return;
#pragma omp atomic write
  *flag = 1;
}

}  // namespace

Error FixedAdd(const FixedAddParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.y_dtype, "y_dtype")
      .That(p.q >= 0 && p.q <= 30, ErrorCode::kBadValue, "q");
  if (p.f == nullptr) check.Rows(p.v, "v", p.v_stride, "v_stride");
  if (p.v != nullptr) check.Rows(p.v, "v", p.v_stride, "v_stride");
  if (p.f != nullptr) check.Rows(p.f, "f", p.f_stride, "f_stride");
  if (p.v_out != nullptr) check.Rows(p.v_out, "v_out", p.v_out_stride, "v_out_stride");
  if (p.v_out == nullptr) check.PerRow(p.y, "v_out");
  if (p.y != nullptr) check.Rows(p.y, "y", p.y_stride, "y_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::FixedAdd, p, stream);
  cpu::ParallelFor(p.N, 16 * p.N * p.C,
                   [&](Range rows) { Tell(FixedAddRows(p, rows), p.overflow); });
  return {};
}

Error FixedShiftAdd(const FixedShiftAddParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .That(p.q >= 0 && p.q <= 30, ErrorCode::kBadValue, "q")
      .That(p.shift >= 1 && p.shift <= kMaxShift, ErrorCode::kBadValue, "shift")
      .Rows(p.v, "v", p.v_stride, "v_stride")
      .Rows(p.f, "f", p.f_stride, "f_stride")
      .Rows(p.v_out, "v_out", p.v_out_stride, "v_out_stride")
      .PerRow(p.side, "side");
  if (!check.ok()) return check.error();
  check.That(p.side_stride >= SideBytes(p.C, p.shift) || p.N <= 1, ErrorCode::kBadStride,
             "side_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::FixedShiftAdd, p, stream);
  cpu::ParallelFor(p.N, 12 * p.N * p.C,
                   [&](Range rows) { Tell(FixedShiftAddRows(p, rows), p.overflow); });
  return {};
}

}  // namespace snug::kernels
