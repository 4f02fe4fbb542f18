#include "worker/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/program/moments.h"
#include "worker/program/planning/predict.h"

namespace snug::train {
namespace {

static_assert(program::kNormBytes >= kernels::SumSquaresWorkspace() + sizeof(double));

static_assert(program::kMomentBlock == kernels::kCodeBlock);

constexpr double kClipEpsilon = 1e-6;  // torch.nn.utils.clip_grad_norm_'s.

constexpr int64_t kF32 = sizeof(float);

// Zeros: the state of no moments, as codes too.
absl::StatusOr<Moments> NewMoments(execute::Device& device, execute::StatePlace place,
                                   int64_t elements, bool coded) {
  const auto zeros = [&](int64_t bytes) -> absl::StatusOr<execute::StateBuffer> {
    ASSIGN_OR_RETURN(execute::StateBuffer buffer,
                     execute::StateBuffer::Allocate(device, bytes, place));
    if (place == execute::StatePlace::kHost)
      std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
    else
      RETURN_IF_ERROR(execute::FillMemory(device, buffer.data(), 0, bytes));
    return buffer;
  };
  Moments moments;
  ASSIGN_OR_RETURN(moments.first, zeros(coded ? elements : elements * kF32));
  ASSIGN_OR_RETURN(moments.second, zeros(coded ? elements : elements * kF32));
  if (!coded) return moments;
  const int64_t scale_bytes = kernels::CodeBlocks(elements) * kF32;
  ASSIGN_OR_RETURN(moments.first_scale, zeros(scale_bytes));
  ASSIGN_OR_RETURN(moments.second_scale, zeros(scale_bytes));
  return moments;
}

template <typename T>
T* As(const execute::StateBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

void PointTo(const Moments& moments, kernels::AdamWTensor& tensor) {
  if (!moments.coded()) {
    tensor.m = As<float>(moments.first);
    tensor.v = As<float>(moments.second);
    return;
  }
  tensor.codes = {.m = As<uint8_t>(moments.first),
                  .v = As<uint8_t>(moments.second),
                  .m_scale = As<float>(moments.first_scale),
                  .v_scale = As<float>(moments.second_scale)};
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
    RETURN_IF_ERROR(optimizer.Add(program, parameters, i));
  }
  return optimizer;
}

absl::Status Optimizer::Add(const program::Program& program, const weights::Parameters& parameters,
                            size_t index) {
  const program::Parameter& parameter = program.parameters[index];
  const execute::ParameterView& view = parameters.views()[index];
  ASSIGN_OR_RETURN(Moments moments,
                   NewMoments(*device_, weights::OptimizerPlace(program), view.value.elements(),
                              program::HasMomentCodes(program, parameter)));
  moments.parameter = static_cast<int>(index);
  const bool copied = program::HasMaster(parameter);
  kernels::AdamWTensor& tensor = tensors_.emplace_back();
  tensor.p = parameters.exact(index).as<float>();
  tensor.g = view.gradient.as<float>();
  tensor.copy = copied ? view.value.as<kernels::bf16>() : nullptr;
  tensor.n = view.value.elements();
  tensor.decay = parameter.decay;
  PointTo(moments, tensor);
  moments_.push_back(std::move(moments));
  return absl::OkStatus();
}

int64_t Optimizer::moment_bytes() const {
  int64_t bytes = 0;
  for (const Moments& moments : moments_) {
    for (const execute::StateBuffer* buffer :
         {&moments.first, &moments.second, &moments.first_scale, &moments.second_scale})
      bytes += execute::CountedBytes(buffer->bytes());
  }
  return bytes;
}

absl::StatusOr<double> Optimizer::SumSquares(
    const std::vector<kernels::NormTensor>& gradients) const {
  double sum_squares = 0.0;
  if (gradients.empty()) return sum_squares;
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
  return sum_squares;
}

std::vector<kernels::AdamWTensor> Optimizer::WithGradients() const {
  std::vector<kernels::AdamWTensor> tensors;
  std::copy_if(tensors_.begin(), tensors_.end(), std::back_inserter(tensors),
               [](const kernels::AdamWTensor& tensor) { return tensor.g != nullptr; });
  return tensors;
}

absl::StatusOr<double> Optimizer::GradientNorm() {
  std::vector<kernels::NormTensor> gradients;
  for (const kernels::AdamWTensor& tensor : WithGradients())
    gradients.push_back({.x = tensor.g, .n = tensor.n});
  ASSIGN_OR_RETURN(const double squares, SumSquares(gradients));
  return std::sqrt(squares + std::exchange(released_squares_, 0.0));
}

absl::Status Optimizer::Change(kernels::AdamWTensor* tensors, int64_t count, int64_t step,
                               double learning_rate, double clip) {
  return execute::KernelStatus("AdamW", kernels::AdamW({.tensors = tensors,
                                                        .count = count,
                                                        .step = step,
                                                        .lr = learning_rate,
                                                        .beta1 = options_.beta1,
                                                        .beta2 = options_.beta2,
                                                        .eps = options_.epsilon,
                                                        .weight_decay = options_.weight_decay,
                                                        .grad_scale = static_cast<float>(clip)},
                                                       device_->stream(0)));
}

absl::Status Optimizer::Step(int64_t step, double learning_rate, double gradient_norm) {
  const double clip = options_.max_grad_norm > 0.0
                          ? std::min(1.0, options_.max_grad_norm / (gradient_norm + kClipEpsilon))
                          : 1.0;
  std::vector<kernels::AdamWTensor> tensors = WithGradients();
  return Change(tensors.data(), static_cast<int64_t>(tensors.size()), step, learning_rate, clip);
}

absl::Status Optimizer::StepOne(int32_t parameter, const execute::View& gradient, int64_t step,
                                double learning_rate) {
  const auto found = std::find_if(moments_.begin(), moments_.end(), [&](const Moments& moments) {
    return moments.parameter == parameter;
  });
  if (found == moments_.end())
    return absl::InternalError(absl::StrCat("parameter ", parameter, " has no moments"));
  kernels::AdamWTensor tensor = tensors_[static_cast<size_t>(found - moments_.begin())];
  tensor.g = gradient.as<float>();
  ASSIGN_OR_RETURN(const double squares, SumSquares({{.x = tensor.g, .n = tensor.n}}));
  released_squares_ += squares;
  if (!std::isfinite(squares)) return absl::OkStatus();  // The norm will say so.
  return Change(&tensor, 1, step, learning_rate, /*clip=*/1.0);
}

}  // namespace snug::train
