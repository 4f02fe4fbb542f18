// xhat = x r, r = 1 / sqrt(mean x^2 + eps), of x less its mean where the op is centred, of each
// vector of a row: as many as r is wide (one, or one per head). Backward from xhat and r alone,
// into dx or added to it.
#include "kernels/normalize.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {
namespace {

kernels::Norm NormOf(const OpRun& run) {
  return run.op->attributes.centred ? kernels::Norm::kLayer : kernels::Norm::kRms;
}

}  // namespace

void NormalizeForward(const OpRun& run) {
  const View &x = run.in[0], &xhat = run.out[0];
  const int64_t vectors = run.out[1].width, width = x.width / vectors;
  Check("NormalizeForward",
        kernels::NormalizeForward({.x = x.data,
                                   .xhat = xhat.data,
                                   .r = run.out[1].as<float>(),
                                   .N = x.rows * vectors,
                                   .C = width,
                                   .x_stride = width,
                                   .xhat_stride = width,
                                   .dtype = KernelType(x),
                                   .eps = static_cast<float>(run.op->attributes.epsilon),
                                   .norm = NormOf(run)},
                                  run.stream()));
}

void NormalizeBackward(const OpRun& run) {
  const View &xhat = run.out[0], &dx = run.d_in[0];
  const int64_t vectors = run.out[1].width, width = dx.width / vectors;
  Check("NormalizeBackward", kernels::NormalizeBackward({.dxhat = run.d_out[0].data,
                                                         .xhat = xhat.data,
                                                         .r = run.out[1].as<float>(),
                                                         .dx = dx.data,
                                                         .N = dx.rows * vectors,
                                                         .C = width,
                                                         .dxhat_stride = width,
                                                         .xhat_stride = width,
                                                         .dx_stride = width,
                                                         .dtype = KernelType(dx),
                                                         .accumulate = run.adds(0),
                                                         .norm = NormOf(run)},
                                                        run.stream()));
}

}  // namespace snug::execute
