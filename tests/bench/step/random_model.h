// Weights, gradients and moments of a program, and one batch for it: random, in a device's memory.
#ifndef TESTS_BENCH_STEP_RANDOM_MODEL_H_
#define TESTS_BENCH_STEP_RANDOM_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/adamw.h"
#include "worker/execute/device.h"
#include "worker/execute/view.h"
#include "worker/program/program.h"

namespace snug::bench {

class RandomModel {
 public:
  // Uniform, of deviation 1 / sqrt(width), drawn where the memory is: the same numbers on every
  // device. Vectors are ones.
  static absl::StatusOr<RandomModel> Create(const program::Program& program,
                                            execute::Device& device);

  std::span<const execute::ParameterView> views() const { return views_; }
  absl::Status ZeroGradients();
  // AdamW over all that is trained, and waits for it.
  absl::Status Step(int64_t step);

 private:
  explicit RandomModel(execute::Device& device) : device_(&device) {}
  absl::StatusOr<execute::View> Take(const program::Parameter& parameter, program::DType dtype);
  // The fp32 master is drawn as its parameter was.
  absl::Status AddTrained(const program::Parameter& parameter, uint32_t seed,
                          execute::ParameterView& view);

  execute::Device* device_;
  std::vector<execute::DeviceBuffer> buffers_;
  std::vector<execute::ParameterView> views_;
  std::vector<kernels::AdamWTensor> trained_;
};

// Documents of these lengths; every token but each one's last is trained.
class RandomBatch {
 public:
  static absl::StatusOr<RandomBatch> Create(const program::Program& program,
                                            const std::vector<int64_t>& lengths,
                                            execute::Device& device);
  const execute::Batch& batch() const { return batch_; }

  struct Drawn {  // The host's.
    std::vector<int32_t> ids, positions, labels;
    std::vector<int64_t> offsets, trained_rows;
    std::vector<float> weights;
  };

 private:
  Drawn drawn_;
  std::vector<execute::DeviceBuffer> buffers_;
  execute::Batch batch_;
};

}  // namespace snug::bench

#endif  // TESTS_BENCH_STEP_RANDOM_MODEL_H_
