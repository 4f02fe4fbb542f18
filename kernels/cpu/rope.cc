// Rotary embedding on the CPU: checks, and division of rows among threads.
#include "kernels/rope.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(RopeTableRows, void(const RopeTableParams&, Range));
SNUG_VERSIONS(RopeRows, void(const RopeParams&, bool, Range));
namespace {

Error CheckRope(const RopeParams& p) {
  cpu::Check check(p.N, p.heads * p.D, "heads");
  return check.That(p.D >= 2 && p.D % 2 == 0, ErrorCode::kBadShape, "D")
      .That(p.R >= 0 && p.R <= p.D && p.R % 2 == 0, ErrorCode::kBadShape, "R")
      .Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .PerRow(p.cos, "cos")
      .PerRow(p.sin, "sin")
      .error();
}

Error Rotate(const RopeParams& p, bool backward, Stream stream) {
  if (const Error error = CheckRope(p); !error.ok()) return error;
  if (stream != nullptr) {
    return cpu::OnStream(backward ? cuda::RopeBackward : cuda::RopeForward, p, stream);
  }
  cpu::ParallelFor(p.N, 2 * p.N * p.heads * p.D * SizeOf(p.dtype),
                   [&](Range rows) { RopeRows(p, backward, rows); });
  return {};
}

}  // namespace

Error RopeTable(const RopeTableParams& p, Stream stream) {
  cpu::Check check(p.N, p.D, "D");
  check.That(p.D % 2 == 0, ErrorCode::kBadShape, "D")
      .Type(p.position_type, "position_type")
      .PerRow(p.positions, "positions")
      .PerRow(p.inv_freq, "inv_freq")
      .PerRow(p.cos, "cos")
      .PerRow(p.sin, "sin");
  if (check.ok() && stream == nullptr) {
    check.That(cpu::IndicesInRange(p.positions, p.position_type, p.N, INT64_MAX),
               ErrorCode::kBadIndex, "positions");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::RopeTable, p, stream);
  constexpr int64_t kCostOfAngle = 8;  // In bytes of traffic that would take as long.
  cpu::ParallelFor(p.N, p.N * p.D * kCostOfAngle, [&](Range rows) { RopeTableRows(p, rows); });
  return {};
}

Error RopeForward(const RopeParams& p, Stream stream) { return Rotate(p, false, stream); }
Error RopeBackward(const RopeParams& p, Stream stream) { return Rotate(p, true, stream); }

}  // namespace snug::kernels
