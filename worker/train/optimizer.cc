#include "worker/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/grad_norm.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/program/predict.h"

namespace snug::train {
namespace {

static_assert(program::kNormBytes >= kernels::SumSquaresWorkspace() + sizeof(double));

constexpr double kClipEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_'s.

absl::StatusOr<execute::DeviceBuffer> Zeros(execute::Device& device, int64_t elements) {
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  ASSIGN_OR_RETURN(execute::DeviceBuffer buffer, execute::DeviceBuffer::Allocate(device, bytes));
  RETURN_IF_ERROR(execute::FillMemory(device, buffer.data(), 0, bytes));
  return buffer;
}

}  // namespace

absl::StatusOr<Optimizer> Optimizer::Create(const program::Program& program,
                                            const weights::Parameters& parameters,
                                            const TrainingOptions& options,
                                            execute::Device& device) {
  Optimizer optimizer(options, device);
  if (!device.host_reads_memory()) {
    ASSIGN_OR_RETURN(optimizer.norm_, execute::DeviceBuffer::Allocate(device, program::kNormBytes));
  }
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    if (!program.parameters[i].trainable) continue;
    const execute::ParameterView& view = parameters.views()[i];
    const bool copied = program::HasMaster(program.parameters[i]);
    Moments moments{.parameter = static_cast<int>(i), .first = {}, .second = {}};
    ASSIGN_OR_RETURN(moments.first, Zeros(device, view.value.elements()));
    ASSIGN_OR_RETURN(moments.second, Zeros(device, view.value.elements()));
    optimizer.tensors_.push_back({.p = parameters.exact(i).as<float>(),
                                  .g = view.gradient.as<float>(),
                                  .m = reinterpret_cast<float*>(moments.first.data()),
                                  .v = reinterpret_cast<float*>(moments.second.data()),
                                  .copy = copied ? view.value.as<kernels::bf16>() : nullptr,
                                  .n = view.value.elements(),
                                  .decay = program.parameters[i].decay});
    optimizer.moments_.push_back(std::move(moments));
  }
  return optimizer;
}

int64_t Optimizer::moment_bytes() const {
  int64_t bytes = 0;
  for (const Moments& moments : moments_)
    bytes += moments.first.counted_bytes() + moments.second.counted_bytes();
  return bytes;
}

absl::StatusOr<double> Optimizer::GradientNorm() const {
  std::vector<kernels::NormTensor> gradients;
  for (const kernels::AdamWTensor& tensor : tensors_) {
    gradients.push_back({.x = tensor.g, .n = tensor.n});
  }
  double sum_squares = 0.0;
  char* workspace = norm_.data();
  const bool on_host = workspace == nullptr;
  double* sum = on_host ? &sum_squares
                        : reinterpret_cast<double*>(workspace + kernels::SumSquaresWorkspace());
  RETURN_IF_ERROR(execute::KernelStatus(
      "SumSquares", kernels::SumSquares({.tensors = gradients.data(),
                                         .count = static_cast<int64_t>(gradients.size()),
                                         .sum_squares = sum,
                                         .workspace = workspace},
                                        device_->stream(0))));
  if (!on_host) RETURN_IF_ERROR(execute::CopyMemory(*device_, sum, sizeof(double), &sum_squares));
  return std::sqrt(sum_squares);
}

absl::Status Optimizer::Step(int64_t step, double learning_rate, double gradient_norm) {
  const double clip = options_.max_grad_norm > 0.0
                          ? std::min(1.0, options_.max_grad_norm / (gradient_norm + kClipEpsilon))
                          : 1.0;
  return execute::KernelStatus("AdamW",
                               kernels::AdamW({.tensors = tensors_.data(),
                                               .count = static_cast<int64_t>(tensors_.size()),
                                               .step = step,
                                               .lr = learning_rate,
                                               .beta1 = options_.beta1,
                                               .beta2 = options_.beta2,
                                               .eps = options_.epsilon,
                                               .weight_decay = options_.weight_decay,
                                               .grad_scale = static_cast<float>(clip)},
                                              device_->stream(0)));
}

}  // namespace snug::train
