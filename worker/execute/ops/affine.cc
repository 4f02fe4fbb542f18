// z = xhat gamma. Backward: dxhat = dz gamma, dgamma += sum over rows of dz xhat.
#include "kernels/rms_norm.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

void AffineForward(const OpRun& run) {
  const View &xhat = run.in[0], &gamma = run.parameters[0].value;
  Check("AffineForward", kernels::AffineForward({.xhat = xhat.data,
                                                 .gamma = gamma.data,
                                                 .z = run.out[0].data,
                                                 .N = xhat.rows,
                                                 .C = xhat.width,
                                                 .xhat_stride = xhat.width,
                                                 .z_stride = xhat.width,
                                                 .dtype = KernelType(xhat),
                                                 .gamma_dtype = KernelType(gamma)},
                                                nullptr));
}

void AffineBackward(const OpRun& run) {
  const View &dz = run.d_out[0], &gamma = run.parameters[0].value;
  Check("AffineBackward", kernels::AffineBackward({.dz = dz.data,
                                                   .gamma = gamma.data,
                                                   .xhat = run.in[0].data,
                                                   .dxhat = run.d_in[0].data,
                                                   .dgamma = run.parameters[0].gradient.as<float>(),
                                                   .N = dz.rows,
                                                   .C = dz.width,
                                                   .dz_stride = dz.width,
                                                   .xhat_stride = dz.width,
                                                   .dxhat_stride = dz.width,
                                                   .dtype = KernelType(dz),
                                                   .gamma_dtype = KernelType(gamma),
                                                   .accumulate = true},
                                                  nullptr));
}

}  // namespace snug::execute
