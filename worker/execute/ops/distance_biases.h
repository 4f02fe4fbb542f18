// Biases of attention's scores by distance: the op's parameter has one per bucket and head, the
// kernel reads one per distance and head. The table of these is made in the op's workspace,
// whenever it is needed, and its gradient goes back to the buckets.
#ifndef WORKER_EXECUTE_OPS_DISTANCE_BIASES_H_
#define WORKER_EXECUTE_OPS_DISTANCE_BIASES_H_

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "kernels/embedding.h"
#include "worker/execute/ops/cast.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/scratch.h"

namespace snug::execute {

class DistanceBiases {
 public:
  explicit DistanceBiases(const OpRun& run)
      : run_(run),
        buckets_(program::BucketsOf(run.op->attributes.distances, run.op->attributes.causal)),
        ids_(run, entries() * static_cast<int64_t>(sizeof(int32_t))),
        table_(run, entries(), heads(), program::DType::kF32) {
    if (entries() == 0) return;
    if (ids_.data() != nullptr)
      run.Copy(ids_.data(), buckets_.data(), entries() * static_cast<int64_t>(sizeof(int32_t)));
    MakeTable();
  }

  // Of a call of the kernel.
  kernels::AttentionBias bias() const {
    if (entries() == 0) return {};
    const program::OpAttributes& a = run_.op->attributes;
    return {.table = table_.view().as<float>(),
            .entries = entries(),
            .stride = 1,
            .entry_stride = heads(),
            .origin = a.distances.Origin(a.causal)};
  }
  // (entries, heads): where a gradient of the table is added up. Without rows: it is not wanted.
  int64_t gradient_rows() const { return run_.parameters[0].gradient ? entries() : 0; }

  // The parameter's gradient += that of the table.
  void AddGradient(const View& d_table) const {
    const View& gradient = run_.parameters[0].gradient;
    const StreamScratch ranks(run_, kernels::EmbeddingWorkspace(entries()));
    Check("EmbeddingBackward", kernels::EmbeddingBackward({.ids = ids(),
                                                           .dy = d_table.data,
                                                           .dW = gradient.as<float>(),
                                                           .N = entries(),
                                                           .C = heads(),
                                                           .V = gradient.rows,
                                                           .dy_stride = heads(),
                                                           .dW_stride = heads(),
                                                           .dtype = KernelType(d_table),
                                                           .workspace = ranks.data()},
                                                          run_.stream()));
  }

 private:
  int64_t entries() const { return static_cast<int64_t>(buckets_.size()); }
  int64_t heads() const { return run_.op->attributes.heads; }
  const int32_t* ids() const {
    return ids_.data() == nullptr ? buckets_.data() : static_cast<const int32_t*>(ids_.data());
  }

  void MakeTable() const {
    const View& weight = run_.parameters[0].value;
    if (weight.dtype == program::DType::kF32) return Gather(weight, table_.view());
    const Scratch rounded(run_, entries(), heads(), weight.dtype);
    Gather(weight, rounded.view());
    Cast(run_, rounded.view(), table_.view());
  }
  void Gather(const View& weight, const View& rows) const {
    Check("EmbeddingForward", kernels::EmbeddingForward({.ids = ids(),
                                                         .W = weight.data,
                                                         .y = rows.data,
                                                         .N = rows.rows,
                                                         .C = rows.width,
                                                         .V = weight.rows,
                                                         .W_stride = weight.width,
                                                         .y_stride = rows.width,
                                                         .dtype = KernelType(weight),
                                                         .scale = 1.0f},
                                                        run_.stream()));
  }

  const OpRun& run_;
  const std::vector<int32_t> buckets_;  // By entry.
  const StreamScratch ids_;
  const Scratch table_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_DISTANCE_BIASES_H_
