// z = xhat gamma (+ beta), for each vector of a row that gamma is as wide as. Backward: dxhat = dz
// gamma, dgamma (+)= the sum of dz xhat over all vectors, dbeta (+)= that of dz.
#include "kernels/affine.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/scratch.h"

namespace snug::execute {
namespace {

// Absent: there is none.
ParameterView BetaOf(const OpRun& run) {
  return run.op->attributes.bias ? run.parameters[1] : ParameterView{};
}

}  // namespace

void AffineForward(const OpRun& run) {
  const View &xhat = run.in[0], &gamma = run.parameters[0].value;
  const int64_t width = gamma.elements();
  Check("AffineForward", kernels::AffineForward({.xhat = xhat.data,
                                                 .gamma = gamma.data,
                                                 .z = run.out[0].data,
                                                 .N = xhat.elements() / width,
                                                 .C = width,
                                                 .xhat_stride = width,
                                                 .z_stride = width,
                                                 .dtype = KernelType(xhat),
                                                 .gamma_dtype = KernelType(gamma),
                                                 .beta = BetaOf(run).value.data},
                                                run.stream()));
}

void AffineBackward(const OpRun& run) {
  const View &dz = run.d_out[0], &gamma = run.parameters[0].value;
  const View& dgamma = run.parameters[0].gradient;
  const int64_t width = gamma.elements(), vectors = dz.elements() / width;
  const View dbeta = BetaOf(run).gradient;
  const int64_t sums_asked_for = (dgamma ? 1 : 0) + (dbeta ? 1 : 0);
  const StreamScratch sums(run, sums_asked_for * kernels::ColumnSumsWorkspace(vectors, width));
  Check("AffineBackward",
        kernels::AffineBackward({.dz = dz.data,
                                 .gamma = gamma.data,
                                 .xhat = run.in[0].data,
                                 .dxhat = run.d_in[0].data,
                                 .dgamma = dgamma.as<float>(),
                                 .N = vectors,
                                 .C = width,
                                 .dz_stride = width,
                                 .xhat_stride = width,
                                 .dxhat_stride = width,
                                 .dtype = KernelType(dz),
                                 .gamma_dtype = KernelType(gamma),
                                 .accumulate = run.adds_to_parameter(dgamma ? 0 : 1),
                                 .workspace = sums.data(),
                                 .dbeta = dbeta.as<float>()},
                                run.stream()));
}

}  // namespace snug::execute
