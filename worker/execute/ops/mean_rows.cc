// y[d] = the mean of the rows of x that document d has, of which all have as many; dx = dy over as
// many.
#include "kernels/mean_rows.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

void MeanRowsForward(const OpRun& run) {
  const View &x = run.in[0], &y = run.out[0];
  Check("MeanRowsForward", kernels::MeanRowsForward({.x = x.data,
                                                     .y = y.data,
                                                     .N = y.rows,
                                                     .G = x.rows / y.rows,
                                                     .C = y.width,
                                                     .x_stride = x.width,
                                                     .y_stride = y.width,
                                                     .dtype = KernelType(x)},
                                                    run.stream()));
}

void MeanRowsBackward(const OpRun& run) {
  const View &dy = run.d_out[0], &dx = run.d_in[0];
  Check("MeanRowsBackward", kernels::MeanRowsBackward({.dy = dy.data,
                                                       .dx = dx.data,
                                                       .N = dy.rows,
                                                       .G = dx.rows / dy.rows,
                                                       .C = dy.width,
                                                       .dy_stride = dy.width,
                                                       .dx_stride = dx.width,
                                                       .dtype = KernelType(dy),
                                                       .accumulate = run.adds(0)},
                                                      run.stream()));
}

}  // namespace snug::execute
