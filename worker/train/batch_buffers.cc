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
  buffers.head_width_ = config.head_width;
  RETURN_IF_ERROR(execute::CatchTorch([&] {
    buffers.frequencies_ =
        RopeFrequencies(config.rotary_width(), config.rope_theta, config.rope_scaling);
  }));
  const int64_t angles = key.tokens * (config.head_width / 2);
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
  RETURN_IF_ERROR(allocate(buffers.cos_, static_cast<size_t>(angles) * sizeof(float)));
  RETURN_IF_ERROR(allocate(buffers.sin_, static_cast<size_t>(angles) * sizeof(float)));
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
    const int64_t tokens = dataset.row_tokens()[static_cast<size_t>(row)];
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
  const kernels::Error error = kernels::RopeTable({.positions = As<int32_t>(positions_),
                                                   .inv_freq = frequencies_.data(),
                                                   .cos = As<float>(cos_),
                                                   .sin = As<float>(sin_),
                                                   .N = tokens,
                                                   .D = head_width_},
                                                  nullptr);
  if (!error.ok()) return absl::InternalError(absl::StrCat("RopeTable: ", error.parameter));
  return execute::Batch{.tokens = tokens,
                        .documents = documents,
                        .ids = As<int32_t>(ids_),
                        .labels = As<int32_t>(labels_),
                        .weights = As<float>(weights_),
                        .positions = As<int32_t>(positions_),
                        .offsets = As<int64_t>(offsets_),
                        .cos = As<float>(cos_),
                        .sin = As<float>(sin_)};
}

double LossWeight(const Dataset& dataset, const MicroBatch& rows) {
  double sum = 0.0;
  for (int64_t row : rows) {
    const float* weights = dataset.weights(row);
    for (int64_t t = 1; t < dataset.row_tokens()[static_cast<size_t>(row)]; ++t) sum += weights[t];
  }
  return sum;
}

}  // namespace snug::train
