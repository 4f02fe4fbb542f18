// The parts of an image's windows as the documents of attention (worker/program/patch_order.h), and
// the bias of their scores, of which the op's parameter has one per entry and head.
#ifndef WORKER_EXECUTE_OPS_WINDOW_DOCUMENTS_H_
#define WORKER_EXECUTE_OPS_WINDOW_DOCUMENTS_H_

#include <cstdint>
#include <vector>

#include "kernels/attention.h"
#include "worker/execute/ops/cast.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/scratch.h"

namespace snug::execute {

class WindowDocuments {
 public:
  explicit WindowDocuments(const OpRun& run)
      : run_(run),
        order_(run.op->attributes.order),
        parts_(there() ? program::PartsOf(order_) : program::WindowParts()),
        offsets_(Offsets()),
        widths_(Widths()),
        device_offsets_(run, BytesOf(offsets_)),
        device_widths_(run, BytesOf(widths_)),
        table_(run, IsRounded() ? order_.entries() : 0, heads(), program::DType::kF32) {
    if (!there()) return;
    if (device_offsets_.data() != nullptr) {
      run.Copy(device_offsets_.data(), offsets_.data(), BytesOf(offsets_));
      run.Copy(device_widths_.data(), widths_.data(), BytesOf(widths_));
    }
    if (IsRounded()) Cast(run, run.parameters[0].value, table_.view());
  }

  bool there() const { return order_.side > 0; }
  // In the place of the batch's documents.
  void AddTo(kernels::AttentionShape& shape) const {
    if (!there()) return;
    shape.documents = static_cast<int64_t>(widths_.size());
    shape.query_offsets = offsets_.data();
    shape.device_query_offsets = static_cast<const int64_t*>(device_offsets_.data());
    shape.bias = {
        .table = IsRounded() ? table_.view().as<float>() : run_.parameters[0].value.as<float>(),
        .entries = order_.entries(),
        .stride = 1,
        .entry_stride = heads(),
        .origin = order_.origin(),
        .pitch = order_.pitch(),
        .widths = widths_.data(),
        .device_widths = static_cast<const int64_t*>(device_widths_.data())};
  }
  // (entries, heads), fp32: the parameter's; null: it is not wanted.
  float* gradient() const { return there() ? run_.parameters[0].gradient.as<float>() : nullptr; }

 private:
  static int64_t BytesOf(const std::vector<int64_t>& array) {
    return static_cast<int64_t>(array.size() * sizeof(int64_t));
  }
  int64_t heads() const { return run_.op->attributes.heads; }
  bool IsRounded() const {
    return there() && run_.parameters[0].value.dtype != program::DType::kF32;
  }
  std::vector<int64_t> Offsets() const {
    std::vector<int64_t> offsets;
    if (there()) offsets.push_back(0);
    for (int64_t image = 0; image < run_.batch->documents; ++image) {
      for (const int64_t patches : parts_.patches) offsets.push_back(offsets.back() + patches);
    }
    return offsets;
  }
  std::vector<int64_t> Widths() const {
    std::vector<int64_t> widths;
    for (int64_t image = 0; image < run_.batch->documents; ++image)
      widths.insert(widths.end(), parts_.widths.begin(), parts_.widths.end());
    return widths;
  }

  const OpRun& run_;
  const program::PatchOrder order_;
  const program::WindowParts parts_;  // Of an image.
  const std::vector<int64_t> offsets_, widths_;
  const StreamScratch device_offsets_, device_widths_;
  const Scratch table_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_WINDOW_DOCUMENTS_H_
