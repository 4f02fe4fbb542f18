// AdamW over a program's trained parameters, and the norm of their gradients. Moments are two fp32
// numbers per trained element, or codes of 8 bits (program/moments.h), on the device or, where the
// program says so, on the host: there the kernel reads and writes them over the bus. A parameter of
// bf16 is its master's copy, rounded in the pass that changes it. Issued on the device's stream 0;
// the host waits in GradientNorm alone.
#ifndef WORKER_TRAIN_OPTIMIZER_H_
#define WORKER_TRAIN_OPTIMIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/adamw.h"
#include "kernels/grad_norm.h"
#include "worker/execute/device.h"
#include "worker/execute/state_buffer.h"
#include "worker/program/program.h"
#include "worker/train/attempt.h"
#include "worker/weights/parameters.h"

namespace snug::train {

// Moments of one trained parameter, of its shape: fp32, or codes of 8 bits.
struct Moments {
  int parameter = 0;  // Index into Program::parameters.
  execute::StateBuffer first, second;
  execute::StateBuffer first_scale, second_scale;  // Of codes: fp32, one per block of them.

  bool coded() const { return first_scale.bytes() > 0; }
};

class Optimizer {
 public:
  static absl::StatusOr<Optimizer> Create(const program::Program& program,
                                          const weights::Parameters& parameters,
                                          const TrainingOptions& options, execute::Device& device);

  // L2, over all trained parameters, those with released gradients as StepOne saw them since it was
  // asked last. Not finite if and only if a gradient is not.
  absl::StatusOr<double> GradientNorm();

  // Changes all whose gradient is not released. `step` from 1. Gradients are scaled so that their
  // norm is at most max_grad_norm, as torch's clip_grad_norm_ does.
  absl::Status Step(int64_t step, double learning_rate, double gradient_norm);

  // Changes one whose gradient is released behind it. Nothing is clipped.
  absl::Status StepOne(int32_t parameter, const execute::View& gradient, int64_t step,
                       double learning_rate);

  const std::vector<Moments>& moments() const { return moments_; }
  int64_t moment_bytes() const;  // Wherever they lie.

 private:
  absl::StatusOr<double> SumSquares(const std::vector<kernels::NormTensor>& gradients) const;
  std::vector<kernels::AdamWTensor> WithGradients() const;  // Of tensors_.
  absl::Status Change(kernels::AdamWTensor* tensors, int64_t count, int64_t step,
                      double learning_rate, double clip);
  absl::Status Add(const program::Program& program, const weights::Parameters& parameters,
                   size_t index);

  Optimizer(const TrainingOptions& options, execute::Device& device)
      : options_(options), device_(&device) {}

  TrainingOptions options_;
  execute::Device* device_;
  // Where the host does not read the device's memory: what SumSquares works in, and its sum behind.
  execute::DeviceBuffer norm_;
  std::vector<Moments> moments_;
  std::vector<kernels::AdamWTensor> tensors_;  // As moments_; a released gradient is null.
  double released_squares_ = 0.0;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_OPTIMIZER_H_
