// y[i] = x[index[i]], the index being that of each image's rows among themselves
// (worker/program/patch_order.h). It has each row once, so that the gradient is the same the other
// way round: dx[j] = dy[inverse[j]].
#include <cstdint>
#include <vector>

#include "kernels/rows.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/scratch.h"

namespace snug::execute {
namespace {

void Reorder(const OpRun& run, const View& x, const std::vector<int32_t>& index, const View& y) {
  const auto bytes = static_cast<int64_t>(index.size() * sizeof(int32_t));
  const StreamScratch on_stream(run, bytes);
  if (on_stream.data() != nullptr) run.Copy(on_stream.data(), index.data(), bytes);
  Check("GatherRows",
        kernels::GatherRows({.x = x.data,
                             .index = on_stream.data() == nullptr ? index.data() : on_stream.data(),
                             .y = y.data,
                             .N = y.rows,
                             .C = y.width,
                             .x_rows = x.rows,
                             .period = static_cast<int64_t>(index.size()),
                             .x_stride = x.width,
                             .y_stride = y.width,
                             .dtype = KernelType(x),
                             .index_type = kernels::IndexType::kI32},
                            run.stream()));
}

}  // namespace

void ReorderRowsForward(const OpRun& run) {
  const program::OpAttributes& a = run.op->attributes;
  Reorder(run, run.in[0], program::RowsBetween(a.order_before, a.order), run.out[0]);
}

void ReorderRowsBackward(const OpRun& run) {
  const program::OpAttributes& a = run.op->attributes;
  Reorder(run, run.d_out[0], program::RowsBetween(a.order, a.order_before), run.d_in[0]);
}

}  // namespace snug::execute
