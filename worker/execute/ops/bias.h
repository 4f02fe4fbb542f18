// The bias of a linear module, where the op has one: laid under the product, which is then added.
#ifndef WORKER_EXECUTE_OPS_BIAS_H_
#define WORKER_EXECUTE_OPS_BIAS_H_

#include "kernels/bias.h"
#include "worker/execute/op_run.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/scratch.h"

namespace snug::execute {

// Every row of y becomes the bias, parameter number `index` of the op. Returns whether there is
// one: then the product must be added to y.
inline bool LayBias(const OpRun& run, size_t index, const View& y) {
  if (!run.op->attributes.bias) return false;
  Check("BiasForward", kernels::BiasForward({.b = run.parameters[index].value.data,
                                             .y = y.data,
                                             .N = y.rows,
                                             .C = y.width,
                                             .y_stride = y.width,
                                             .dtype = KernelType(y)},
                                            run.stream()));
  return true;
}

inline bool LayBias(const OpRun& run, size_t index) { return LayBias(run, index, run.out[0]); }

// db (+)= the sum of dy over its rows, if the op has a bias and this is trained.
inline void AddBiasGradient(const OpRun& run, size_t index, const View& dy) {
  if (!run.op->attributes.bias || !run.parameters[index].gradient) return;
  const StreamScratch sums(run, kernels::ColumnSumsWorkspace(dy.rows, dy.width));
  Check("BiasBackward", kernels::BiasBackward({.dy = dy.data,
                                               .db = run.parameters[index].gradient.as<float>(),
                                               .N = dy.rows,
                                               .C = dy.width,
                                               .dy_stride = dy.width,
                                               .dtype = KernelType(dy),
                                               .accumulate = run.adds_to_parameter(index),
                                               .workspace = sums.data()},
                                              run.stream()));
}
inline void AddBiasGradient(const OpRun& run, size_t index) {
  AddBiasGradient(run, index, run.d_out[0]);
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_BIAS_H_
