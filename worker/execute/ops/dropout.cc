// y = x m, m 0 or 1 / (1 - rate), drawn again whenever it is needed; dx = dy m. Not in evaluation,
// where y is x. Of whole documents m is one number for all rows of each, of which all have as many.
#include "kernels/dropout.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {
namespace {

void Drop(const OpRun& run, const View& from, const View& to) {
  const bool whole = run.op->attributes.whole_documents;
  Check("Dropout", kernels::Dropout({.x = from.data,
                                     .y = to.data,
                                     .N = from.rows,
                                     .C = from.width,
                                     .x_stride = from.width,
                                     .y_stride = from.width,
                                     .first_row = run.first_row,
                                     .rows_per_draw = whole ? from.rows / run.batch->documents : 0,
                                     .dtype = KernelType(from),
                                     .rate = run.scalars.dropout ? run.op->attributes.dropout : 0.0,
                                     .site = RandomSiteOf(run)},
                                    run.stream()));
}

}  // namespace

void DropoutForward(const OpRun& run) { Drop(run, run.in[0], run.out[0]); }

void DropoutBackward(const OpRun& run) { Drop(run, run.d_out[0], run.d_in[0]); }

}  // namespace snug::execute
