// A ToyRun whose parameters, gradients and batch lie on a device that the host does not read.
#ifndef TESTS_WORKER_EXECUTE_GPU_UPLOADED_RUN_H_
#define TESTS_WORKER_EXECUTE_GPU_UPLOADED_RUN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/worker/execute/toy_run.h"
#include "worker/execute/device.h"
#include "worker/program/plan.h"

namespace snug::execute {

class UploadedRun {
 public:
  // Both must outlive it.
  UploadedRun(ToyRun& run, Device& device);

  program::Tape Lower(const program::Plan& plan, bool training = true) const;
  // A fresh executor and an arena of its own; gradients begin at zero. The loss.
  absl::StatusOr<double> RunInArena(const program::Tape& tape);
  // The next run gives the logits behind the last token, and no loss.
  void AskForNextLogits();
  // All of them, one behind another, as ToyRun has them.
  std::vector<float> Gradients();

 private:
  // A copy on the device.
  void* Upload(const void* from, int64_t bytes);
  template <typename T>
  T* UploadArray(const T* from, int64_t count) {
    return static_cast<T*>(Upload(from, count * static_cast<int64_t>(sizeof(T))));
  }
  void UploadBatch(const Batch& batch);

  ToyRun& run_;
  Device& device_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<ParameterView> parameters_;
  Batch batch_;
};

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_GPU_UPLOADED_RUN_H_
