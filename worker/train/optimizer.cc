#include "worker/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/grad_norm.h"
#include "proto/snug/status_macros.h"

namespace snug::train {
namespace {

constexpr double kClipEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_'s.

absl::Status ToStatus(const char* kernel, kernels::Error error) {
  if (error.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(kernel, ": ", kernels::ToString(error.code), " (", error.parameter, ")"));
}

absl::StatusOr<execute::DeviceBuffer> Zeros(execute::Device& device, int64_t elements) {
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  ASSIGN_OR_RETURN(execute::DeviceBuffer buffer, execute::DeviceBuffer::Allocate(device, bytes));
  device.Zero(buffer.data(), bytes, /*stream=*/0);
  return buffer;
}

}  // namespace

absl::StatusOr<Optimizer> Optimizer::Create(const program::Program& program,
                                            const weights::Parameters& parameters,
                                            const TrainingOptions& options,
                                            execute::Device& device) {
  Optimizer optimizer;
  optimizer.options_ = options;
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

absl::StatusOr<double> Optimizer::GradientNorm() const {
  std::vector<kernels::NormTensor> gradients;
  for (const kernels::AdamWTensor& tensor : tensors_) {
    gradients.push_back({.x = tensor.g, .n = tensor.n});
  }
  double sum_squares = 0.0;
  RETURN_IF_ERROR(
      ToStatus("SumSquares", kernels::SumSquares({.tensors = gradients.data(),
                                                  .count = static_cast<int64_t>(gradients.size()),
                                                  .sum_squares = &sum_squares},
                                                 nullptr)));
  return std::sqrt(sum_squares);
}

absl::Status Optimizer::Step(int64_t step, double learning_rate, double gradient_norm) {
  const double clip = options_.max_grad_norm > 0.0
                          ? std::min(1.0, options_.max_grad_norm / (gradient_norm + kClipEpsilon))
                          : 1.0;
  return ToStatus("AdamW", kernels::AdamW({.tensors = tensors_.data(),
                                           .count = static_cast<int64_t>(tensors_.size()),
                                           .step = step,
                                           .lr = learning_rate,
                                           .beta1 = options_.beta1,
                                           .beta2 = options_.beta2,
                                           .eps = options_.epsilon,
                                           .weight_decay = options_.weight_decay,
                                           .grad_scale = static_cast<float>(clip)},
                                          nullptr));
}

}  // namespace snug::train
