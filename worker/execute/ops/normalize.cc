// xhat = x r, r = 1 / sqrt(mean x^2 + eps). Backward from xhat and r alone, into dx or added to it.
#include "kernels/rms_norm.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

void NormalizeForward(const OpRun& run) {
  const View &x = run.in[0], &xhat = run.out[0];
  Check("NormalizeForward",
        kernels::NormalizeForward({.x = x.data,
                                   .xhat = xhat.data,
                                   .r = run.out[1].as<float>(),
                                   .N = x.rows,
                                   .C = x.width,
                                   .x_stride = x.width,
                                   .xhat_stride = x.width,
                                   .dtype = KernelType(x),
                                   .eps = static_cast<float>(run.op->attributes.epsilon)},
                                  nullptr));
}

void NormalizeBackward(const OpRun& run) {
  const View &xhat = run.out[0], &dx = run.d_in[0];
  Check("NormalizeBackward", kernels::NormalizeBackward({.dxhat = run.d_out[0].data,
                                                         .xhat = xhat.data,
                                                         .r = run.out[1].as<float>(),
                                                         .dx = dx.data,
                                                         .N = dx.rows,
                                                         .C = dx.width,
                                                         .dxhat_stride = dx.width,
                                                         .xhat_stride = dx.width,
                                                         .dx_stride = dx.width,
                                                         .dtype = KernelType(dx),
                                                         .accumulate = run.adds(0)},
                                                        nullptr));
}

}  // namespace snug::execute
