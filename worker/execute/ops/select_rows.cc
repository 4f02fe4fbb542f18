// y[i] = x[index[i]], the rows of x that y's stand for. Backward: dx (+)= dy where the index names
// a row, else 0. And rows that lie beside one another: the same bytes.
#include "kernels/rows.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

void SelectRowsForward(const OpRun& run) {
  const View &x = run.in[0], &y = run.out[0];
  Check("GatherRows", kernels::GatherRows({.x = x.data,
                                           .index = run.batch->trained_rows,
                                           .y = y.data,
                                           .N = y.rows,
                                           .C = x.width,
                                           .x_rows = x.rows,
                                           .x_stride = x.width,
                                           .y_stride = y.width,
                                           .dtype = KernelType(x),
                                           .index_type = kernels::IndexType::kI64},
                                          run.stream()));
}

void SelectRowsBackward(const OpRun& run) {
  const View &dy = run.d_out[0], &dx = run.d_in[0];
  Check("ScatterRows", kernels::ScatterRows({.x = dy.data,
                                             .index = run.batch->trained_rows,
                                             .y = dx.data,
                                             .N = dy.rows,
                                             .C = dx.width,
                                             .y_rows = dx.rows,
                                             .x_stride = dy.width,
                                             .y_stride = dx.width,
                                             .dtype = KernelType(dx),
                                             .index_type = kernels::IndexType::kI64,
                                             .accumulate = run.adds(0),
                                             .zero_others = !run.adds(0)},
                                            run.stream()));
}

void MergeRowsForward(const OpRun& run) {
  if (run.out[0].data != run.in[0].data)
    run.Copy(run.out[0].data, run.in[0].data, run.out[0].bytes());
}

void MergeRowsBackward(const OpRun& run) {
  if (run.d_in[0].data != run.d_out[0].data)
    run.Copy(run.d_in[0].data, run.d_out[0].data, run.d_out[0].bytes());
}

}  // namespace snug::execute
