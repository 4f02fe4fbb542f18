// y[i] = x[index[i]], the rows of x that y's stand for. Backward: dx (+)= dy where the index names
// a row, else 0. And rows that lie beside one another: the same bytes.
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/row_moves.h"

namespace snug::execute {

void SelectRowsForward(const OpRun& run) {
  Gather(run, run.in[0], run.batch->trained_rows, run.out[0]);
}

void SelectRowsBackward(const OpRun& run) {
  Scatter(run, run.d_out[0], run.batch->trained_rows, run.d_in[0],
          run.adds(0) ? Scattered::kAdd : Scattered::kSetAndZeroOthers);
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
