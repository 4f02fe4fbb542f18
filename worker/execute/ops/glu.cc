// p = activation(g) u, and its backward; any of the operands may share memory as kernels/glu.h
// allows. Under two_bit the forward writes activation(g) and codes of g beside p, and the backward
// reads these in the place of g.
#include "kernels/glu.h"

#include "worker/execute/ops/activation.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/two_bit.h"

namespace snug::execute {

void GluForward(const OpRun& run) {
  const View& g = run.in[0];
  const TwoBitForm form = TwoBitFormIn(run.out[1], g.width);
  Check("GluForward", kernels::GluForward({.g = g.data,
                                           .u = run.in[1].data,
                                           .p = run.out[0].data,
                                           .N = g.rows,
                                           .C = g.width,
                                           .g_stride = g.width,
                                           .u_stride = g.width,
                                           .p_stride = g.width,
                                           .dtype = KernelType(g),
                                           .gate = ActivationOf(run),
                                           .a = form.activation,
                                           .codes = form.codes,
                                           .a_stride = g.width,
                                           .code_stride = form.code_stride,
                                           .two_bit = kernels::TwoBitOf(ActivationOf(run))},
                                          run.stream()));
}

void GluBackward(const OpRun& run) {
  const View &dp = run.d_out[0], &g = run.in[0];
  const bool coded = IsTwoBitForm(g);
  const TwoBitForm form = coded ? TwoBitFormIn(g, dp.width) : TwoBitForm{};
  Check("GluBackward", kernels::GluBackward({.dp = dp.data,
                                             .g = coded ? nullptr : g.data,
                                             .u = run.in[1].data,
                                             .dg = run.d_in[0].data,
                                             .du = run.d_in[1].data,
                                             .N = dp.rows,
                                             .C = dp.width,
                                             .dp_stride = dp.width,
                                             .g_stride = dp.width,
                                             .u_stride = dp.width,
                                             .dg_stride = dp.width,
                                             .du_stride = dp.width,
                                             .dtype = KernelType(dp),
                                             .gate = ActivationOf(run),
                                             .codes = form.codes,
                                             .a = form.activation,
                                             .code_stride = form.code_stride,
                                             .a_stride = dp.width,
                                             .two_bit = kernels::TwoBitOf(ActivationOf(run))},
                                            run.stream()));
}

}  // namespace snug::execute
