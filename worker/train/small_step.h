// A model's training step so small that its runs hardly take longer than it takes to start them:
// what starting a run costs is measured by it, and a GPU's kernels are loaded by it.
#ifndef WORKER_TRAIN_SMALL_STEP_H_
#define WORKER_TRAIN_SMALL_STEP_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/executor.h"
#include "worker/execute/slot_memory.h"
#include "worker/program/program.h"
#include "worker/program/rates.h"
#include "worker/program/tape.h"
#include "worker/train/batch_buffers.h"

namespace snug::train {

struct SmallShape {
  int64_t head_width = 32;
  int64_t window = 0;  // Of the second of two layers; 0: none.
  program::TrainingMode mode = {};
  bool trains_tokens = false;  // All, by a weight of 0. Else none: the head's run is shorter then.
};

// Weights and tokens are zeros.
class SmallStep {
 public:
  // ResourceExhausted where the device has no room for it. The device must outlive the step.
  static absl::StatusOr<std::unique_ptr<SmallStep>> Prepare(execute::Device& device,
                                                            const SmallShape& shape = {});

  // Until the device has done it.
  absl::Status Run();
  program::Work work() const;

 private:
  explicit SmallStep(execute::Device& device) : device_(device) {}

  absl::Status LowerFor(const program::TapeKey& key, const SmallShape& shape);
  absl::Status TakeParameters();
  absl::Status TrainTokens();

  execute::Device& device_;
  program::Program program_;
  program::Tape tape_;
  execute::DeviceBuffer memory_;   // Of the parameters and their gradients.
  execute::DeviceBuffer trained_;  // Rows, labels and weights of the tokens that are.
  std::vector<int64_t> trained_rows_;
  std::vector<execute::ParameterView> parameters_;
  std::optional<BatchBuffers> buffers_;
  std::optional<execute::ArenaMemory> arena_;
  std::optional<execute::Executor> executor_;
  execute::Batch batch_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_SMALL_STEP_H_
