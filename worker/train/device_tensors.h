// A device's memory as checkpoint/, which knows no device, reads and writes it.
#ifndef WORKER_TRAIN_DEVICE_TENSORS_H_
#define WORKER_TRAIN_DEVICE_TENSORS_H_

#include "worker/checkpoint/tensor_bytes.h"
#include "worker/execute/host_copy.h"

namespace snug::train {

class DeviceTensors final : public checkpoint::TensorMemory {
 public:
  explicit DeviceTensors(execute::Device& device) : device_(device) {}

  absl::Status Copy(const void* from, int64_t bytes, void* to) const override {
    return execute::CopyMemory(device_, from, bytes, to);
  }
  // What a tensor there says of its memory: null where the host reads it by itself.
  const checkpoint::TensorMemory* memory() const {
    return device_.host_reads_memory() ? nullptr : this;
  }

 private:
  execute::Device& device_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_DEVICE_TENSORS_H_
