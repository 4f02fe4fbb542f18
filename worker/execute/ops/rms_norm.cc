// z = x r (offset + gamma), r = 1 / sqrt(mean x^2 + eps), of each vector of a row that gamma is as
// wide as. Backward from x and r, into dx or added to it; dgamma (+)= the sum over all vectors.
#include "kernels/rms_norm.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/scratch.h"

namespace snug::execute {

void RmsNormForward(const OpRun& run) {
  const View &x = run.in[0], &gamma = run.parameters[0].value;
  const int64_t width = gamma.elements();
  Check("RmsNormForward",
        kernels::RmsNormForward({.x = x.data,
                                 .gamma = gamma.data,
                                 .z = run.out[0].data,
                                 .r = run.out[1].as<float>(),
                                 .N = x.elements() / width,
                                 .C = width,
                                 .x_stride = width,
                                 .z_stride = width,
                                 .dtype = KernelType(x),
                                 .gamma_dtype = KernelType(gamma),
                                 .eps = static_cast<float>(run.op->attributes.epsilon),
                                 .offset = static_cast<float>(run.op->attributes.offset)},
                                run.stream()));
}

void RmsNormBackward(const OpRun& run) {
  const View &x = run.in[0], &gamma = run.parameters[0].value;
  const View& dgamma = run.parameters[0].gradient;
  const int64_t width = gamma.elements(), vectors = x.elements() / width;
  const StreamScratch sums(run, dgamma ? kernels::ColumnSumsWorkspace(vectors, width) : 0);
  Check("RmsNormBackward",
        kernels::RmsNormBackward({.dz = run.d_out[0].data,
                                  .x = x.data,
                                  .r = run.out[1].as<float>(),
                                  .gamma = gamma.data,
                                  .dx = run.d_in[0].data,
                                  .dgamma = dgamma.as<float>(),
                                  .N = vectors,
                                  .C = width,
                                  .dz_stride = width,
                                  .x_stride = width,
                                  .dx_stride = width,
                                  .dtype = KernelType(x),
                                  .gamma_dtype = KernelType(gamma),
                                  .offset = static_cast<float>(run.op->attributes.offset),
                                  .accumulate_dx = run.adds(0),
                                  .accumulate_dgamma = run.adds_to_parameter(0),
                                  .workspace = sums.data()},
                                 run.stream()));
}

}  // namespace snug::execute
