// x[i] = E[ids[i]]; E (V, C), x (N, C). Backward: dE[ids[i]] += dx[i], in the order of the rows.
#include "kernels/embedding.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

void EmbeddingForward(const OpRun& run) {
  const View &table = run.parameters[0].value, &x = run.out[0];
  Check("EmbeddingForward", kernels::EmbeddingForward({.ids = run.batch->ids,
                                                       .W = table.data,
                                                       .y = x.data,
                                                       .N = x.rows,
                                                       .C = x.width,
                                                       .V = table.rows,
                                                       .W_stride = x.width,
                                                       .y_stride = x.width,
                                                       .dtype = KernelType(x)},
                                                      nullptr));
}

void EmbeddingBackward(const OpRun& run) {
  const View &dx = run.d_out[0], &gradient = run.parameters[0].gradient;
  Check("EmbeddingBackward", kernels::EmbeddingBackward({.ids = run.batch->ids,
                                                         .dy = dx.data,
                                                         .dW = gradient.as<float>(),
                                                         .N = dx.rows,
                                                         .C = dx.width,
                                                         .V = gradient.rows,
                                                         .dy_stride = dx.width,
                                                         .dW_stride = dx.width,
                                                         .dtype = KernelType(dx)},
                                                        nullptr));
}

}  // namespace snug::execute
