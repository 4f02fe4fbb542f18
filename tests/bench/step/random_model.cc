#include "tests/bench/step/random_model.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/rope.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/torch_errors.h"

namespace snug::bench {
namespace {

using execute::View;
using program::DType;
using program::Parameter;

constexpr int64_t kPiece = 1 << 20;  // Elements drawn at a time.
constexpr double kRopeBase = 10000.0;

absl::Status ToStatus(const char* kernel, kernels::Error error) {
  if (error.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(kernel, ": ", kernels::ToString(error.code), " (", error.parameter, ")"));
}

}  // namespace

absl::StatusOr<RandomModel> RandomModel::Create(const program::Program& program,
                                                execute::Device& device) {
  RandomModel model(device);
  for (const Parameter& parameter : program.parameters) {
    execute::ParameterView& view = model.views_.emplace_back();
    const bool vector = parameter.shape.size() == 1;
    const auto seed = static_cast<uint32_t>(model.views_.size());
    ASSIGN_OR_RETURN(view.value, model.Take(parameter, parameter.dtype));
    RETURN_IF_ERROR(execute::CatchTorch([&] { model.FillRandom(view.value, vector, seed); }));
    if (parameter.trainable) RETURN_IF_ERROR(model.AddTrained(parameter, view));
  }
  RETURN_IF_ERROR(model.ZeroGradients());
  return model;
}

absl::StatusOr<View> RandomModel::Take(const Parameter& parameter, DType dtype) {
  ASSIGN_OR_RETURN(execute::DeviceBuffer buffer,
                   execute::DeviceBuffer::Allocate(
                       *device_, parameter.elements() * program::SizeOf(dtype)));
  buffers_.push_back(std::move(buffer));
  const int64_t rows = parameter.shape.size() == 1 ? 1 : parameter.shape[0];
  return View{buffers_.back().data(), rows, parameter.elements() / rows, dtype};
}

void RandomModel::FillRandom(const View& view, bool vector, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(view.width)));
  const int64_t size = program::SizeOf(view.dtype);
  std::vector<float> drawn;
  std::vector<kernels::bf16> rounded;
  for (int64_t begin = 0; begin < view.elements(); begin += kPiece) {
    const int64_t count = std::min(kPiece, view.elements() - begin);
    drawn.resize(static_cast<size_t>(count));
    for (float& x : drawn) x = vector ? 1.0f : normal(random);
    rounded.clear();
    for (float x : drawn) rounded.push_back(kernels::ToBf16(x));
    const void* from = view.dtype == DType::kF32 ? static_cast<const void*>(drawn.data())
                                                 : static_cast<const void*>(rounded.data());
    device_->Copy(view.as<char>() + begin * size, from, count * size, /*stream=*/0);
  }
}

absl::Status RandomModel::AddTrained(const Parameter& parameter, execute::ParameterView& view) {
  ASSIGN_OR_RETURN(view.gradient, Take(parameter, DType::kF32));
  View master = view.value;
  if (program::HasMaster(parameter)) {
    ASSIGN_OR_RETURN(master, Take(parameter, DType::kF32));
  }
  ASSIGN_OR_RETURN(const View first, Take(parameter, DType::kF32));
  ASSIGN_OR_RETURN(const View second, Take(parameter, DType::kF32));
  for (const View* view_of_zeros : {&first, &second}) {
    RETURN_IF_ERROR(execute::CatchTorch(
        [&] { device_->Zero(view_of_zeros->data, view_of_zeros->bytes(), /*stream=*/0); }));
  }
  if (master.data != view.value.data) {
    RETURN_IF_ERROR(execute::CatchTorch(
        [&] { FillRandom(master, parameter.shape.size() == 1, /*seed=*/1); }));
  }
  trained_.push_back({.p = master.as<float>(),
                      .g = view.gradient.as<float>(),
                      .m = first.as<float>(),
                      .v = second.as<float>(),
                      .copy = program::HasMaster(parameter) ? view.value.data : nullptr,
                      .n = master.elements()});
  return absl::OkStatus();
}

absl::Status RandomModel::ZeroGradients() {
  return execute::CatchTorch([&] {
    for (const execute::ParameterView& view : views_) {
      if (view.gradient) device_->Zero(view.gradient.data, view.gradient.bytes(), /*stream=*/0);
    }
  });
}

absl::Status RandomModel::Step(int64_t step) {
  RETURN_IF_ERROR(ToStatus("AdamW", kernels::AdamW({.tensors = trained_.data(),
                                                    .count = static_cast<int64_t>(trained_.size()),
                                                    .step = step,
                                                    .lr = 1e-4},
                                                   device_->stream(0))));
  return device_->Synchronize();
}

absl::StatusOr<RandomBatch> RandomBatch::Create(const program::Program& program,
                                                const std::vector<int64_t>& lengths,
                                                execute::Device& device) {
  RandomBatch result;
  std::mt19937 random(7);
  std::vector<int32_t> ids, positions, labels;
  std::vector<float> weights, frequencies;
  result.offsets_ = {0};
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<int32_t>(random() % program.config.vocabulary));
      positions.push_back(static_cast<int32_t>(t));
      if (t + 1 == length) continue;
      result.trained_rows_.push_back(static_cast<int64_t>(ids.size()) - 1);
      labels.push_back(static_cast<int32_t>(random() % program.config.vocabulary));
      weights.push_back(1.0f);
    }
    result.offsets_.push_back(static_cast<int64_t>(ids.size()));
  }
  const int64_t half = program.config.rotary_width() / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(half);
    frequencies.push_back(static_cast<float>(std::pow(kRopeBase, -share)));
  }
  const auto tokens = static_cast<int64_t>(ids.size());
  const auto trained = static_cast<int64_t>(labels.size());
  absl::Status status;
  const auto take = [&](int64_t bytes) -> char* {
    auto buffer = execute::DeviceBuffer::Allocate(device, bytes);
    status.Update(buffer.status());
    if (!buffer.ok()) return nullptr;
    result.buffers_.push_back(*std::move(buffer));
    return result.buffers_.back().data();
  };
  const auto put = [&](const auto& host) {
    using T = typename std::decay_t<decltype(host)>::value_type;
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
    char* address = take(bytes);
    if (status.ok() && bytes > 0) {
      status.Update(execute::CatchTorch([&] { device.Copy(address, host.data(), bytes, 0); }));
    }
    return reinterpret_cast<T*>(address);
  };
  auto* cos = reinterpret_cast<float*>(take(tokens * half * 4));
  auto* sin = reinterpret_cast<float*>(take(tokens * half * 4));
  result.batch_ = {.tokens = tokens,
                   .documents = static_cast<int64_t>(lengths.size()),
                   .trained = trained,
                   .ids = put(ids),
                   .positions = put(positions),
                   .offsets = result.offsets_.data(),
                   .device_offsets = put(result.offsets_),
                   .trained_rows = put(result.trained_rows_),
                   .host_trained_rows = result.trained_rows_.data(),
                   .labels = put(labels),
                   .weights = put(weights),
                   .cos = cos,
                   .sin = sin,
                   .local_cos = cos,
                   .local_sin = sin,
                   .row_loss = reinterpret_cast<double*>(take(trained * 8)),
                   .row_entropy = reinterpret_cast<double*>(take(trained * 8)),
                   .row_correct = reinterpret_cast<int32_t*>(take(trained * 4))};
  const float* on_device = put(frequencies);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(ToStatus("RopeTable", kernels::RopeTable({.positions = result.batch_.positions,
                                                            .inv_freq = on_device,
                                                            .cos = cos,
                                                            .sin = sin,
                                                            .N = tokens,
                                                            .D = 2 * half},
                                                           device.stream(0))));
  return result;
}

}  // namespace snug::bench
