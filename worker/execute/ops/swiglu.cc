// p = silu(g) u, and its backward; any of the operands may share memory as kernels/swiglu.h allows.
#include "kernels/swiglu.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

void SwiGluForward(const OpRun& run) {
  const View& g = run.in[0];
  Check("SwiGluForward", kernels::SwiGluForward({.g = g.data,
                                                 .u = run.in[1].data,
                                                 .p = run.out[0].data,
                                                 .N = g.rows,
                                                 .C = g.width,
                                                 .g_stride = g.width,
                                                 .u_stride = g.width,
                                                 .p_stride = g.width,
                                                 .dtype = KernelType(g)},
                                                nullptr));
}

void SwiGluBackward(const OpRun& run) {
  const View& g = run.in[0];
  Check("SwiGluBackward", kernels::SwiGluBackward({.dp = run.d_out[0].data,
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
                                                   .dtype = KernelType(g)},
                                                  nullptr));
}

}  // namespace snug::execute
