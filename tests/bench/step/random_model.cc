#include "tests/bench/step/random_model.h"

#include <cmath>
#include <random>
#include <utility>

#include "kernels/rope.h"
#include "kernels/uniform_noise.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/ops/kernel_call.h"

namespace snug::bench {
namespace {

using execute::View;
using program::DType;
using program::Parameter;

constexpr double kRopeBase = 10000.0;

// Arrays in a device's memory; after an error nothing more is placed.
class Placement {
 public:
  Placement(execute::Device& device, std::vector<execute::DeviceBuffer>& buffers)
      : device_(device), buffers_(buffers) {}

  template <typename T>
  T* Take(int64_t elements) {
    if (!status_.ok()) return nullptr;
    auto buffer =
        execute::DeviceBuffer::Allocate(device_, elements * static_cast<int64_t>(sizeof(T)));
    status_ = buffer.status();
    if (!status_.ok()) return nullptr;
    buffers_.push_back(*std::move(buffer));
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  template <typename T>
  T* Put(const std::vector<T>& host) {
    T* address = Take<T>(static_cast<int64_t>(host.size()));
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
    if (address == nullptr) return nullptr;
    status_ = execute::CopyMemory(device_, host.data(), bytes, address);
    return address;
  }
  const absl::Status& status() const { return status_; }

 private:
  execute::Device& device_;
  std::vector<execute::DeviceBuffer>& buffers_;
  absl::Status status_;
};

RandomBatch::Drawn Draw(int64_t vocabulary, const std::vector<int64_t>& lengths) {
  std::mt19937 random(7);
  RandomBatch::Drawn drawn;
  const auto token = [&] { return static_cast<int32_t>(random() % vocabulary); };
  for (const int64_t length : lengths) {
    drawn.offsets.push_back(static_cast<int64_t>(drawn.ids.size()));
    for (int64_t t = 0; t < length; ++t) {
      drawn.ids.push_back(token());
      drawn.positions.push_back(static_cast<int32_t>(t));
      if (t + 1 == length) continue;
      drawn.trained_rows.push_back(static_cast<int64_t>(drawn.ids.size()) - 1);
      drawn.labels.push_back(token());
      drawn.weights.push_back(1.0f);
    }
  }
  drawn.offsets.push_back(static_cast<int64_t>(drawn.ids.size()));
  return drawn;
}

absl::Status FillOnes(execute::Device& device, const View& view) {
  return execute::FillRows(device, view, [&](const View& rows, int64_t /*first*/) {
    for (int64_t i = 0; i < rows.elements(); ++i) {
      if (rows.dtype == DType::kF32) {
        rows.as<float>()[i] = 1.0f;
      } else {
        rows.as<kernels::bf16>()[i] = kernels::ToBf16(1.0f);
      }
    }
  });
}

// Ones in a vector, else noise added to zeros: of magnitude sqrt(3 / width), whose deviation is
// 1 / sqrt(width).
absl::Status FillRandom(execute::Device& device, const View& view, bool vector, uint32_t seed) {
  if (vector) return FillOnes(device, view);
  RETURN_IF_ERROR(execute::FillMemory(device, view.data, 0, view.bytes()));
  kernels::RandomSite site;
  site.seed = seed;
  return execute::KernelStatus(
      "AddUniformNoise",
      kernels::AddUniformNoise({.x = view.data,
                                .N = view.rows,
                                .C = view.width,
                                .x_stride = view.width,
                                .dtype = execute::KernelType(view),
                                .magnitude = std::sqrt(3.0f / static_cast<float>(view.width)),
                                .site = site},
                               device.stream(0)));
}

std::vector<float> Frequencies(int64_t half) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(half);
    frequencies.push_back(static_cast<float>(std::pow(kRopeBase, -share)));
  }
  return frequencies;
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
    RETURN_IF_ERROR(FillRandom(device, view.value, vector, seed));
    if (parameter.trainable) RETURN_IF_ERROR(model.AddTrained(parameter, seed, view));
  }
  RETURN_IF_ERROR(model.ZeroGradients());
  return model;
}

absl::StatusOr<View> RandomModel::Take(const Parameter& parameter, DType dtype) {
  ASSIGN_OR_RETURN(
      execute::DeviceBuffer buffer,
      execute::DeviceBuffer::Allocate(*device_, parameter.elements() * program::SizeOf(dtype)));
  buffers_.push_back(std::move(buffer));
  const int64_t rows = parameter.shape.size() == 1 ? 1 : parameter.shape[0];
  return View{buffers_.back().data(), rows, parameter.elements() / rows, dtype};
}

absl::Status RandomModel::AddTrained(const Parameter& parameter, uint32_t seed,
                                     execute::ParameterView& view) {
  ASSIGN_OR_RETURN(view.gradient, Take(parameter, DType::kF32));
  View master = view.value;
  if (program::HasMaster(parameter)) {
    ASSIGN_OR_RETURN(master, Take(parameter, DType::kF32));
  }
  ASSIGN_OR_RETURN(const View first, Take(parameter, DType::kF32));
  ASSIGN_OR_RETURN(const View second, Take(parameter, DType::kF32));
  for (const View* moment : {&first, &second}) {
    RETURN_IF_ERROR(execute::FillMemory(*device_, moment->data, 0, moment->bytes()));
  }
  if (master.data != view.value.data) {
    RETURN_IF_ERROR(FillRandom(*device_, master, parameter.shape.size() == 1, seed));
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
  for (const execute::ParameterView& view : views_) {
    const View& gradient = view.gradient;
    RETURN_IF_ERROR(execute::FillMemory(*device_, gradient.data, 0, gradient.bytes()));
  }
  return absl::OkStatus();
}

absl::Status RandomModel::Step(int64_t step) {
  RETURN_IF_ERROR(
      execute::KernelStatus("AdamW", kernels::AdamW({.tensors = trained_.data(),
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
  result.drawn_ = Draw(program.config.vocabulary, lengths);
  const Drawn& drawn = result.drawn_;
  const std::vector<float> frequencies = Frequencies(program.config.rotary_width() / 2);
  const auto tokens = static_cast<int64_t>(drawn.ids.size());
  const auto trained = static_cast<int64_t>(drawn.labels.size());
  const auto half = static_cast<int64_t>(frequencies.size());
  const std::vector<int32_t> offsets32(drawn.offsets.begin(), drawn.offsets.end());
  Placement place(device, result.buffers_);
  auto *cos = place.Take<float>(tokens * half), *sin = place.Take<float>(tokens * half);
  result.batch_ = {.tokens = tokens,
                   .documents = static_cast<int64_t>(lengths.size()),
                   .trained = trained,
                   .ids = place.Put(drawn.ids),
                   .positions = place.Put(drawn.positions),
                   .offsets = drawn.offsets.data(),
                   .device_offsets = place.Put(drawn.offsets),
                   .device_offsets32 = device.machine().cpu ? nullptr : place.Put(offsets32),
                   .trained_rows = place.Put(drawn.trained_rows),
                   .labels = place.Put(drawn.labels),
                   .weights = place.Put(drawn.weights),
                   .cos = cos,
                   .sin = sin,
                   .local_cos = cos,
                   .local_sin = sin,
                   .row_loss = place.Take<double>(trained),
                   .row_entropy = place.Take<double>(trained),
                   .row_correct = place.Take<int32_t>(trained)};
  const float* on_device = place.Put(frequencies);
  RETURN_IF_ERROR(place.status());
  RETURN_IF_ERROR(
      execute::KernelStatus("RopeTable", kernels::RopeTable({.positions = result.batch_.positions,
                                                             .inv_freq = on_device,
                                                             .cos = cos,
                                                             .sin = sin,
                                                             .N = tokens,
                                                             .D = 2 * half},
                                                            device.stream(0))));
  return result;
}

}  // namespace snug::bench
