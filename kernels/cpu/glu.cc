// Gated linear units on the CPU: checks, and division of rows among threads.
#include "kernels/glu.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(GluForwardRows, void(const GluForwardParams&, Range));
SNUG_VERSIONS(GluBackwardRows, void(const GluBackwardParams&, Range));

Error GluForward(const GluForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.g, "g", p.g_stride, "g_stride")
      .Rows(p.u, "u", p.u_stride, "u_stride")
      .Rows(p.p, "p", p.p_stride, "p_stride")
      .Of(p.gate, "gate");
  if (p.a != nullptr) {
    check.Rows(p.a, "a", p.a_stride, "a_stride").That(p.a != p.p, ErrorCode::kBadValue, "a");
  }
  if (p.codes != nullptr) {
    check.Bytes(p.codes, "codes", p.code_stride, 2, "code_stride").Of(p.two_bit, "two_bit");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::GluForward, p, stream);
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { GluForwardRows(p, rows); });
  return {};
}

Error GluBackward(const GluBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").Rows(p.dp, "dp", p.dp_stride, "dp_stride").Of(p.gate, "gate");
  if (p.codes == nullptr) {
    check.Rows(p.g, "g", p.g_stride, "g_stride");
  } else {
    check.Bytes(p.codes, "codes", p.code_stride, 2, "code_stride").Of(p.two_bit, "two_bit");
    if (p.du != nullptr) check.Rows(p.a, "a", p.a_stride, "a_stride");
  }
  if (p.dg != nullptr) {
    check.Rows(p.u, "u", p.u_stride, "u_stride").Rows(p.dg, "dg", p.dg_stride, "dg_stride");
    check.That(p.dg != p.du, ErrorCode::kBadValue, "du");
  }
  if (p.du != nullptr) check.Rows(p.du, "du", p.du_stride, "du_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::GluBackward, p, stream);
  cpu::ParallelFor(p.N, 5 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { GluBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
