// p = activation(g) u, and its backward; any of the operands may share memory as kernels/glu.h
// allows.
#include "kernels/glu.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {
namespace {

kernels::Gate GateOf(const OpRun& run) {
  return run.op->attributes.activation == program::Activation::kSilu ? kernels::Gate::kSilu
                                                                     : kernels::Gate::kGeluTanh;
}

}  // namespace

void GluForward(const OpRun& run) {
  const View& g = run.in[0];
  Check("GluForward", kernels::GluForward({.g = g.data,
                                           .u = run.in[1].data,
                                           .p = run.out[0].data,
                                           .N = g.rows,
                                           .C = g.width,
                                           .g_stride = g.width,
                                           .u_stride = g.width,
                                           .p_stride = g.width,
                                           .dtype = KernelType(g),
                                           .gate = GateOf(run)},
                                          run.stream()));
}

void GluBackward(const OpRun& run) {
  const View& g = run.in[0];
  Check("GluBackward", kernels::GluBackward({.dp = run.d_out[0].data,
                                             .g = g.data,
                                             .u = run.in[1].data,
                                             .dg = run.d_in[0].data,
                                             .du = run.d_in[1].data,
                                             .N = g.rows,
                                             .C = g.width,
                                             .dp_stride = g.width,
                                             .g_stride = g.width,
                                             .u_stride = g.width,
                                             .dg_stride = g.width,
                                             .du_stride = g.width,
                                             .dtype = KernelType(g),
                                             .gate = GateOf(run)},
                                            run.stream()));
}

}  // namespace snug::execute
