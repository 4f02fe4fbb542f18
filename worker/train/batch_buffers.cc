#include "worker/train/batch_buffers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/rope.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/torch_errors.h"
#include "worker/train/rope_frequencies.h"

namespace snug::train {
namespace {

// On a device with memory of its own these would be staging buffers and copies; the CPU's are
// written in place.
template <typename T>
T* As(const execute::DeviceBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

}  // namespace

absl::StatusOr<BatchBuffers> BatchBuffers::Allocate(const program::ModelConfig& config,
                                                    const program::TapeKey& key,
                                                    execute::Device& device) {
  BatchBuffers buffers;
  const int64_t turned = config.rotary_width();
  RETURN_IF_ERROR(execute::CatchTorch([&] {
    buffers.angles_.frequencies = RopeFrequencies(turned, config.rope_theta, config.rope_scaling);
    if (config.local_rope_theta > 0.0) {
      buffers.local_angles_.frequencies = RopeFrequencies(turned, config.local_rope_theta, {});
    }
  }));
  buffers.angles_.attention_factor = static_cast<float>(config.rope_scaling.attention_factor);
  const auto allocate = [&](execute::DeviceBuffer& buffer, size_t bytes) -> absl::Status {
    ASSIGN_OR_RETURN(buffer, execute::DeviceBuffer::Allocate(device, static_cast<int64_t>(bytes)));
    return absl::OkStatus();
  };
  const auto tokens = static_cast<size_t>(key.tokens);
  RETURN_IF_ERROR(allocate(buffers.ids_, tokens * sizeof(int32_t)));
  RETURN_IF_ERROR(allocate(buffers.labels_, tokens * sizeof(int32_t)));
  RETURN_IF_ERROR(allocate(buffers.weights_, tokens * sizeof(float)));
  RETURN_IF_ERROR(allocate(buffers.positions_, tokens * sizeof(int32_t)));
  RETURN_IF_ERROR(
      allocate(buffers.offsets_, static_cast<size_t>(key.documents + 1) * sizeof(int64_t)));
  for (Angles* angles : {&buffers.angles_, &buffers.local_angles_}) {
    const size_t bytes = tokens * angles->frequencies.size() * sizeof(float);
    if (bytes == 0) continue;
    RETURN_IF_ERROR(allocate(angles->cos, bytes));
    RETURN_IF_ERROR(allocate(angles->sin, bytes));
  }
  return buffers;
}

absl::Status BatchBuffers::CheckRoom(int64_t tokens, int64_t documents) const {
  if ((documents + 1) * static_cast<int64_t>(sizeof(int64_t)) > offsets_.bytes())
    return absl::InternalError(absl::StrCat("a micro-batch of ", documents, " documents"));
  if (tokens * static_cast<int64_t>(sizeof(int32_t)) > ids_.bytes())
    return absl::InternalError(absl::StrCat("a micro-batch of ", tokens, " tokens"));
  return absl::OkStatus();
}

absl::StatusOr<execute::Batch> BatchBuffers::Fill(const Dataset& dataset, const MicroBatch& rows) {
  auto *ids = As<int32_t>(ids_), *labels = As<int32_t>(labels_),
       *positions = As<int32_t>(positions_);
  auto* weights = As<float>(weights_);
  auto* offsets = As<int64_t>(offsets_);
  const auto documents = static_cast<int64_t>(rows.size());
  RETURN_IF_ERROR(CheckRoom(0, documents));
  int64_t n = 0;
  for (int64_t d = 0; d < documents; ++d) {
    const int64_t row = rows[static_cast<size_t>(d)];
    const int64_t tokens = dataset.tokens(row);
    RETURN_IF_ERROR(CheckRoom(n + tokens, documents));
    offsets[d] = n;
    for (int64_t t = 0; t < tokens; ++t, ++n) {
      const bool last = t + 1 == tokens;  // Nothing follows within the document.
      ids[n] = dataset.ids(row)[t];
      labels[n] = last ? 0 : dataset.ids(row)[t + 1];
      weights[n] = last ? 0.0f : dataset.weights(row)[t + 1];
      positions[n] = static_cast<int32_t>(t);
    }
  }
  offsets[documents] = n;
  return Finish(n, documents);
}

absl::StatusOr<execute::Batch> BatchBuffers::FillTokens(std::span<const int32_t> ids,
                                                        int64_t past) {
  const auto tokens = static_cast<int64_t>(ids.size());
  RETURN_IF_ERROR(CheckRoom(tokens, 1));
  for (int64_t t = 0; t < tokens; ++t) {
    As<int32_t>(ids_)[t] = ids[static_cast<size_t>(t)];
    As<int32_t>(labels_)[t] = 0;
    As<float>(weights_)[t] = 0.0f;
    As<int32_t>(positions_)[t] = static_cast<int32_t>(past + t);
  }
  As<int64_t>(offsets_)[0] = 0;
  As<int64_t>(offsets_)[1] = tokens;
  return Finish(tokens, 1);
}

absl::StatusOr<execute::Batch> BatchBuffers::Finish(int64_t tokens, int64_t documents) {
  const auto* positions = As<int32_t>(positions_);
  RETURN_IF_ERROR(angles_.Fill(positions, tokens));
  RETURN_IF_ERROR(local_angles_.Fill(positions, tokens));
  return execute::Batch{.tokens = tokens,
                        .documents = documents,
                        .ids = As<int32_t>(ids_),
                        .labels = As<int32_t>(labels_),
                        .weights = As<float>(weights_),
                        .positions = positions,
                        .offsets = As<int64_t>(offsets_),
                        .cos = As<float>(angles_.cos),
                        .sin = As<float>(angles_.sin),
                        .local_cos = As<float>(local_angles_.cos),
                        .local_sin = As<float>(local_angles_.sin)};
}

absl::Status BatchBuffers::Angles::Fill(const int32_t* positions, int64_t n) {
  if (frequencies.empty()) return absl::OkStatus();
  const kernels::Error error =
      kernels::RopeTable({.positions = positions,
                          .inv_freq = frequencies.data(),
                          .cos = As<float>(cos),
                          .sin = As<float>(sin),
                          .N = n,
                          .D = 2 * static_cast<int64_t>(frequencies.size()),
                          .scale = attention_factor},
                         nullptr);
  if (error.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("RopeTable: ", error.parameter));
}

double LossWeight(const Dataset& dataset, const MicroBatch& rows) {
  double sum = 0.0;
  for (int64_t row : rows) {
    const float* weights = dataset.weights(row);
    for (int64_t t = 1; t < dataset.tokens(row); ++t) sum += weights[t];
  }
  return sum;
}

}  // namespace snug::train
