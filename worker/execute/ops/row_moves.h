// Rows by an index of the batch: the same two calls for every op that takes some rows of a value.
#ifndef WORKER_EXECUTE_OPS_ROW_MOVES_H_
#define WORKER_EXECUTE_OPS_ROW_MOVES_H_

#include "kernels/rows.h"
#include "worker/execute/ops/kernel_call.h"

namespace snug::execute {

// rows[i] = all[index[i]]; `index`: (rows) on the device.
inline void Gather(const OpRun& run, const View& all, const int64_t* index, const View& rows) {
  Check("GatherRows", kernels::GatherRows({.x = all.data,
                                           .index = index,
                                           .y = rows.data,
                                           .N = rows.rows,
                                           .C = all.width,
                                           .x_rows = all.rows,
                                           .x_stride = all.width,
                                           .y_stride = all.width,
                                           .dtype = KernelType(all),
                                           .index_type = kernels::IndexType::kI64},
                                          run.stream()));
}

// What happens to all[index[i]], and to rows that the index does not name.
enum class Scattered { kSet, kAdd, kSetAndZeroOthers };

// all[index[i]] (+)= rows[i]; the index rises strictly.
inline void Scatter(const OpRun& run, const View& rows, const int64_t* index, const View& all,
                    Scattered how = Scattered::kSet) {
  Check("ScatterRows", kernels::ScatterRows({.x = rows.data,
                                             .index = index,
                                             .y = all.data,
                                             .N = rows.rows,
                                             .C = all.width,
                                             .y_rows = all.rows,
                                             .x_stride = all.width,
                                             .y_stride = all.width,
                                             .dtype = KernelType(all),
                                             .index_type = kernels::IndexType::kI64,
                                             .accumulate = how == Scattered::kAdd,
                                             .zero_others = how == Scattered::kSetAndZeroOthers},
                                            run.stream()));
}

// The rows of `all` that the index does not name become 0, the `named` ones stay: in one launch,
// however many lie beside one another.
inline void ZeroOthers(const OpRun& run, const int64_t* index, int64_t named, const View& all) {
  Check("ScatterRows", kernels::ScatterRows({.index = index,
                                             .y = all.data,
                                             .N = named,
                                             .C = all.width,
                                             .y_rows = all.rows,
                                             .y_stride = all.width,
                                             .dtype = KernelType(all),
                                             .index_type = kernels::IndexType::kI64,
                                             .zero_others = true},
                                            run.stream()));
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_ROW_MOVES_H_
