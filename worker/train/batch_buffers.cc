#include "worker/train/batch_buffers.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/rope.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/stages.h"
#include "worker/train/rope_frequencies.h"

namespace snug::train {
namespace {

template <typename T>
T* As(const execute::DeviceBuffer& buffer) {
  return reinterpret_cast<T*>(buffer.data());
}

absl::Status AllocateBytes(execute::Device& device, int64_t bytes, execute::DeviceBuffer& buffer) {
  ASSIGN_OR_RETURN(buffer, execute::DeviceBuffer::Allocate(device, bytes));
  return absl::OkStatus();
}

template <typename T>
constexpr int64_t BytesOf(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(T));
}

// `most`: 0: all tokens.
int64_t Limited(int64_t tokens, int64_t most) { return most > 0 ? std::min(tokens, most) : tokens; }

std::vector<std::span<const int32_t>> SourcesOf(const Dataset& dataset, const MicroBatch& rows,
                                                int64_t most_tokens) {
  std::vector<std::span<const int32_t>> sources;
  for (const int64_t row : rows)
    sources.emplace_back(dataset.source_ids(row),
                         static_cast<size_t>(Limited(dataset.source_tokens(row), most_tokens)));
  return sources;
}

}  // namespace

int64_t BatchBuffers::held_bytes() const {
  int64_t bytes = 0;
  for (const execute::DeviceBuffer* buffer : {&ids_.buffer,
                                              &positions_.buffer,
                                              &token_types_.buffer,
                                              &labels_.buffer,
                                              &offsets_.buffer,
                                              &offsets32_.buffer,
                                              &source_ids_.buffer,
                                              &source_offsets_.buffer,
                                              &source_counts_.buffer,
                                              &trained_rows_.buffer,
                                              &weights_.buffer,
                                              &targets_.buffer,
                                              &logits_.buffer,
                                              &patches_.buffer,
                                              &second_labels_.buffer,
                                              &shares_.buffer,
                                              &row_loss_,
                                              &row_entropy_,
                                              &row_correct_,
                                              &overflow_})
    bytes += buffer->counted_bytes();
  for (const Angles* angles : {&angles_, &local_angles_})
    bytes += angles->frequencies.buffer.counted_bytes() + angles->cos.counted_bytes() +
             angles->sin.counted_bytes();
  return bytes;
}

template <typename T>
absl::Status BatchBuffers::Allocate(int64_t elements, Filled<T>& array) {
  if (!device_->host_reads_memory()) array.beside.resize(static_cast<size_t>(elements));
  return AllocateBytes(*device_, BytesOf<T>(elements), array.buffer);
}

template <typename T>
absl::Status BatchBuffers::Upload(Filled<T>& array, int64_t elements) {
  if (array.beside.empty()) return absl::OkStatus();
  return execute::CopyMemory(*device_, array.host(), BytesOf<T>(elements), array.device());
}

absl::StatusOr<BatchBuffers> BatchBuffers::Allocate(const program::Program& program,
                                                    const program::TapeKey& key,
                                                    execute::Device& device) {
  const program::ModelConfig& config = program.config;
  BatchBuffers buffers(program, device);
  const int64_t turned = config.rotary_width(), tokens = key.tokens;
  RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.ids_));
  RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.positions_));
  if (config.token_types > 0) RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.token_types_));
  if (config.has_source()) {
    RETURN_IF_ERROR(buffers.Allocate(key.source_tokens, buffers.source_ids_));
    RETURN_IF_ERROR(buffers.Allocate(key.documents + 1, buffers.source_offsets_));
  }
  RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.trained_rows_));
  RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.labels_));
  RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.weights_));
  if (const int64_t targets = buffers.targets_of_model_; targets > 0)
    RETURN_IF_ERROR(buffers.Allocate(key.documents * targets, buffers.targets_));
  const int64_t judged = config.of_documents() ? key.documents : tokens;
  if (const int64_t classes = buffers.classes_of_model_; classes > 0)
    RETURN_IF_ERROR(buffers.Allocate(judged * classes, buffers.logits_));
  if (const int64_t row = buffers.patch_grid_.row_bytes(); row > 0)
    RETURN_IF_ERROR(buffers.Allocate(tokens * row, buffers.patches_));
  if (config.of_images()) {
    RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.second_labels_));
    RETURN_IF_ERROR(buffers.Allocate(tokens, buffers.shares_));
  }
  RETURN_IF_ERROR(buffers.Allocate(key.documents + 1, buffers.offsets_));
  if (!device.machine().cpu) {
    RETURN_IF_ERROR(buffers.Allocate(key.documents + 1, buffers.offsets32_));
    if (config.has_source())
      RETURN_IF_ERROR(buffers.Allocate(key.documents, buffers.source_counts_));
  }
  RETURN_IF_ERROR(AllocateBytes(device, BytesOf<double>(tokens), buffers.row_loss_));
  RETURN_IF_ERROR(AllocateBytes(device, BytesOf<double>(tokens), buffers.row_entropy_));
  RETURN_IF_ERROR(AllocateBytes(device, BytesOf<int32_t>(tokens), buffers.row_correct_));
  if (config.reversible)
    RETURN_IF_ERROR(AllocateBytes(device, BytesOf<int32_t>(1), buffers.overflow_));
  std::vector<float> frequencies, local_frequencies;
  RETURN_IF_ERROR(execute::CatchTorch([&] {
    frequencies = RopeFrequencies(turned, config.rope_theta, config.rope_scaling);
    if (config.local_rope_theta > 0.0) {
      local_frequencies = RopeFrequencies(turned, config.local_rope_theta, {});
    }
  }));
  buffers.angles_.attention_factor = static_cast<float>(config.rope_scaling.attention_factor);
  RETURN_IF_ERROR(buffers.AllocateAngles(frequencies, tokens, buffers.angles_));
  RETURN_IF_ERROR(buffers.AllocateAngles(local_frequencies, tokens, buffers.local_angles_));
  return buffers;
}

absl::Status BatchBuffers::AllocateAngles(const std::vector<float>& frequencies, int64_t tokens,
                                          Angles& angles) {
  const auto count = static_cast<int64_t>(frequencies.size());
  if (count == 0) return absl::OkStatus();
  RETURN_IF_ERROR(Allocate(count, angles.frequencies));
  std::copy(frequencies.begin(), frequencies.end(), angles.frequencies.host());
  RETURN_IF_ERROR(Upload(angles.frequencies, count));
  RETURN_IF_ERROR(AllocateBytes(*device_, BytesOf<float>(tokens * count), angles.cos));
  return AllocateBytes(*device_, BytesOf<float>(tokens * count), angles.sin);
}

absl::Status BatchBuffers::CheckRoom(int64_t tokens, int64_t documents) const {
  if (BytesOf<int64_t>(documents + 1) > offsets_.buffer.bytes())
    return absl::InternalError(absl::StrCat("a micro-batch of ", documents, " documents"));
  if (BytesOf<int32_t>(tokens) > ids_.buffer.bytes())
    return absl::InternalError(absl::StrCat("a micro-batch of ", tokens, " tokens"));
  return absl::OkStatus();
}

absl::StatusOr<execute::Batch> BatchBuffers::Fill(const Dataset& dataset, const MicroBatch& rows,
                                                  const RowDraws& draws) {
  masking_ = draws.masking;
  most_tokens_ = draws.most_tokens;
  const auto documents = static_cast<int64_t>(rows.size());
  RETURN_IF_ERROR(CheckRoom(0, documents));
  int64_t n = 0, trained = 0;
  for (int64_t d = 0; d < documents; ++d) {
    const int64_t row = rows[static_cast<size_t>(d)];
    const Part part = PartOf(dataset, row);
    RETURN_IF_ERROR(CheckRoom(n + part.tokens(), documents));
    offsets_.host()[d] = n;
    std::copy_n(dataset.ids(row) + part.first, part.tokens(), ids_.host() + n);
    const int64_t first = trained;
    trained = Train(dataset, row, n, trained);
    if (patch_grid_.row_bytes() > 0) LayImage(dataset, row, n, first, draws.images);
    Place(dataset, row, n);
    n += part.tokens();
  }
  offsets_.host()[documents] = n;
  ASSIGN_OR_RETURN(execute::Batch batch, Finish(n, documents, trained));
  if (draws.images != nullptr && draws.images->augmenter.mixes())
    RETURN_IF_ERROR(AddMixed(trained, batch));
  if (has_source_)
    RETURN_IF_ERROR(AddSources(SourcesOf(dataset, rows, draws.most_source_tokens), batch));
  return batch;
}

BatchBuffers::Part BatchBuffers::PartOf(const Dataset& dataset, int64_t row) const {
  const int64_t all = dataset.tokens(row), some = Limited(all, most_tokens_);
  return encodes_ || has_source_ ? Part{0, some} : Part{all - some, all};
}

absl::StatusOr<Predictions> BatchBuffers::Found() {
  if (!logits_.beside.empty())
    RETURN_IF_ERROR(execute::CopyMemory(
        *device_, logits_.device(), BytesOf<float>(trained_ * classes_of_model_), logits_.host()));
  return Predictions{.rows = trained_,
                     .logits = logits_.host(),
                     .labels = labels_.host(),
                     .targets = targets_.host()};
}

absl::Status BatchBuffers::AddMixed(int64_t trained, execute::Batch& batch) {
  RETURN_IF_ERROR(Upload(second_labels_, trained));
  RETURN_IF_ERROR(Upload(shares_, trained));
  batch.second_labels = second_labels_.device();
  batch.shares = shares_.device();
  return absl::OkStatus();
}

void BatchBuffers::LayImage(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained,
                            const EpochImages* images) {
  char* to = patches_.host() + begin * patch_grid_.row_bytes();
  if (images == nullptr) return LayPatches(dataset, row, patch_grid_, to);
  LayPatches(images->augmenter.ImageOf(dataset, row, images->epoch), patch_grid_, to);
  const MixedLabel label = images->augmenter.LabelOf(dataset, row, images->epoch);
  labels_.host()[trained] = label.first;
  second_labels_.host()[trained] = label.second;
  shares_.host()[trained] = label.share;
}

absl::Status BatchBuffers::AddSources(const std::vector<std::span<const int32_t>>& sources,
                                      execute::Batch& batch) {
  int64_t n = 0;
  for (size_t d = 0; d < sources.size(); ++d) {
    const auto tokens = static_cast<int64_t>(sources[d].size());
    if (BytesOf<int32_t>(n + tokens) > source_ids_.buffer.bytes())
      return absl::InternalError(absl::StrCat("a micro-batch of ", n + tokens, " source tokens"));
    source_offsets_.host()[d] = n;
    std::copy(sources[d].begin(), sources[d].end(), source_ids_.host() + n);
    n += tokens;
  }
  source_offsets_.host()[sources.size()] = n;
  if (source_counts_.device() != nullptr) {
    for (size_t d = 0; d < sources.size(); ++d)
      source_counts_.host()[d] = static_cast<int64_t>(sources[d].size());
    RETURN_IF_ERROR(Upload(source_counts_, static_cast<int64_t>(sources.size())));
  }
  batch.source_tokens = n;
  batch.source_ids = source_ids_.device();
  batch.source_offsets = source_offsets_.host();
  batch.device_source_offsets = source_offsets_.device();
  batch.device_source_counts = source_counts_.device();
  RETURN_IF_ERROR(Upload(source_ids_, n));
  return Upload(source_offsets_, static_cast<int64_t>(sources.size()) + 1);
}

// RoBERTa's positions count the tokens that are no padding, from behind the padding's id on, which
// is the position of all padding, as the model reads them.
void BatchBuffers::Place(const Dataset& dataset, int64_t row, int64_t begin) {
  const Part part = PartOf(dataset, row);
  const int64_t tokens = part.tokens();
  int32_t* positions = positions_.host() + begin;
  std::iota(positions, positions + tokens, static_cast<int32_t>(first_position_));
  if (first_position_ > 0) {
    auto next = static_cast<int32_t>(first_position_);
    for (int64_t t = 0; t < tokens; ++t)
      positions[t] = ids_.host()[begin + t] + 1 == first_position_
                         ? static_cast<int32_t>(first_position_) - 1
                         : next++;
  }
  if (token_types_of_model_ == 0) return;
  const int64_t second = token_types_of_model_ > 1 ? dataset.second_begin(row) : part.end;
  int32_t* types = token_types_.host() + begin;
  for (int64_t t = 0; t < tokens; ++t) types[t] = part.first + t < second ? 0 : 1;
}

int64_t BatchBuffers::Train(const Dataset& dataset, int64_t row, int64_t begin, int64_t trained) {
  switch (task_) {
    case program::Task::kSequenceClassification:
    case program::Task::kImageClassification:
      return TrainDocument(dataset, row, begin, trained);
    case program::Task::kTokenClassification:
      return ClassifyTokens(dataset, row, begin, trained);
    case program::Task::kSeq2SeqLm:
      return TrainTarget(dataset, row, begin, trained);
    case program::Task::kMaskedLm:
      return TrainMasked(dataset, row, begin, trained);
    case program::Task::kCausalLm:
      break;
  }
  return TrainTokens(dataset, row, begin, trained);
}

int64_t BatchBuffers::TrainTokens(const Dataset& dataset, int64_t row, int64_t begin,
                                  int64_t trained) {
  const int32_t* ids = dataset.ids(row);
  const float* weights = dataset.weights(row);
  const Part part = PartOf(dataset, row);
  // Behind the last nothing follows within the document.
  for (int64_t t = part.first; t + 1 < part.end; ++t) {
    if (weights[t + 1] == 0.0f) continue;
    trained_rows_.host()[trained] = begin + t - part.first;
    labels_.host()[trained] = ids[t + 1];
    weights_.host()[trained++] = weights[t + 1];
  }
  return trained;
}

int64_t BatchBuffers::ClassifyTokens(const Dataset& dataset, int64_t row, int64_t begin,
                                     int64_t trained) {
  const int32_t* labels = dataset.token_labels(row);
  const Part part = PartOf(dataset, row);
  for (int64_t t = part.first; t < part.end; ++t) {
    if (labels[t] == kNoTokenLabel) continue;
    trained_rows_.host()[trained] = begin + t - part.first;
    labels_.host()[trained] = labels[t];
    weights_.host()[trained++] = 1.0f;
  }
  return trained;
}

// The decoder reads the target one token late, behind the token that it starts with.
int64_t BatchBuffers::TrainTarget(const Dataset& dataset, int64_t row, int64_t begin,
                                  int64_t trained) {
  const int32_t* target = dataset.ids(row);
  const float* weights = dataset.weights(row);
  int32_t* ids = ids_.host() + begin;
  const int64_t tokens = PartOf(dataset, row).tokens();  // The first ones.
  for (int64_t t = 0; t < tokens; ++t) {
    ids[t] = t == 0 ? start_token_ : target[t - 1];
    if (weights[t] == 0.0f) continue;
    trained_rows_.host()[trained] = begin + t;
    labels_.host()[trained] = target[t];
    weights_.host()[trained++] = weights[t];
  }
  return trained;
}

int64_t BatchBuffers::TrainMasked(const Dataset& dataset, int64_t row, int64_t begin,
                                  int64_t trained) {
  const int32_t* ids = dataset.ids(row);
  const float* weights = dataset.weights(row);
  const Part part = PartOf(dataset, row);
  for (int64_t t = part.first; t < part.end; ++t) {
    if (weights[t] == 0.0f) continue;
    const MaskedToken found = MaskOf(masking_, dataset.mask_tokens(), row, t, ids[t]);
    if (!found.chosen) continue;
    ids_.host()[begin + t - part.first] = found.read;
    trained_rows_.host()[trained] = begin + t - part.first;
    labels_.host()[trained] = ids[t];
    weights_.host()[trained++] = weights[t];
  }
  return trained;
}

// An encoder reads the first token. Of others transformers reads the last token that is not
// pad_token_id, wherever that stands; of padding alone the first.
int64_t BatchBuffers::TrainDocument(const Dataset& dataset, int64_t row, int64_t begin,
                                    int64_t trained) {
  const int32_t* ids = dataset.ids(row);
  const Part part = PartOf(dataset, row);
  int64_t last = encodes_ ? part.first : part.end - 1;
  while (last > part.first && ids[last] == pad_token_) --last;
  trained_rows_.host()[trained] = begin + last - part.first;
  if (targets_of_model_ > 0)
    std::copy_n(dataset.targets(row), targets_of_model_,
                targets_.host() + trained * targets_of_model_);
  else
    labels_.host()[trained] = dataset.label(row);
  weights_.host()[trained] = 1.0f;
  return trained + 1;
}

absl::StatusOr<execute::Batch> BatchBuffers::FillTokens(std::span<const int32_t> ids,
                                                        std::span<const int32_t> source,
                                                        int64_t past) {
  const auto tokens = static_cast<int64_t>(ids.size());
  RETURN_IF_ERROR(CheckRoom(tokens, 1));
  for (int64_t t = 0; t < tokens; ++t) {
    ids_.host()[t] = ids[static_cast<size_t>(t)];
    positions_.host()[t] = static_cast<int32_t>(past + t);
  }
  offsets_.host()[0] = 0;
  offsets_.host()[1] = tokens;
  ASSIGN_OR_RETURN(execute::Batch batch, Finish(tokens, 1, /*trained=*/0));
  if (has_source_) RETURN_IF_ERROR(AddSources({source}, batch));
  return batch;
}

absl::StatusOr<execute::Batch> BatchBuffers::Finish(int64_t tokens, int64_t documents,
                                                    int64_t trained) {
  trained_ = trained;
  RETURN_IF_ERROR(Upload(ids_, tokens));
  RETURN_IF_ERROR(Upload(positions_, tokens));
  if (token_types_of_model_ > 0) RETURN_IF_ERROR(Upload(token_types_, tokens));
  RETURN_IF_ERROR(Upload(patches_, tokens * patch_grid_.row_bytes()));
  RETURN_IF_ERROR(Upload(offsets_, documents + 1));
  if (offsets32_.device() != nullptr) {
    std::copy_n(offsets_.host(), documents + 1, offsets32_.host());
    RETURN_IF_ERROR(Upload(offsets32_, documents + 1));
  }
  RETURN_IF_ERROR(Upload(trained_rows_, trained));
  if (targets_of_model_ > 0)
    RETURN_IF_ERROR(Upload(targets_, trained * targets_of_model_));
  else
    RETURN_IF_ERROR(Upload(labels_, trained));
  RETURN_IF_ERROR(Upload(weights_, trained));
  RETURN_IF_ERROR(FillAngles(angles_, tokens));
  RETURN_IF_ERROR(FillAngles(local_angles_, tokens));
  return execute::Batch{.tokens = tokens,
                        .documents = documents,
                        .trained = trained,
                        .merged = program::MergedPatches(tokens, stages_),
                        .ids = ids_.device(),
                        .positions = positions_.device(),
                        .token_types = token_types_.device(),
                        .patches = patches_.device(),
                        .offsets = offsets_.host(),
                        .device_offsets = offsets_.device(),
                        .device_offsets32 = offsets32_.device(),
                        .trained_rows = trained_rows_.device(),
                        .labels = labels_.device(),
                        .targets = targets_.device(),
                        .weights = weights_.device(),
                        .cos = As<float>(angles_.cos),
                        .sin = As<float>(angles_.sin),
                        .local_cos = As<float>(local_angles_.cos),
                        .local_sin = As<float>(local_angles_.sin),
                        .row_loss = As<double>(row_loss_),
                        .row_entropy = As<double>(row_entropy_),
                        .row_correct = As<int32_t>(row_correct_),
                        .row_logits = logits_.device(),
                        .overflow = As<int32_t>(overflow_)};
}

absl::Status BatchBuffers::FillAngles(Angles& angles, int64_t tokens) {
  const int64_t half = angles.frequencies.buffer.bytes() / BytesOf<float>(1);
  if (half == 0) return absl::OkStatus();
  return execute::KernelStatus("RopeTable",
                               kernels::RopeTable({.positions = positions_.device(),
                                                   .inv_freq = angles.frequencies.device(),
                                                   .cos = As<float>(angles.cos),
                                                   .sin = As<float>(angles.sin),
                                                   .N = tokens,
                                                   .D = 2 * half,
                                                   .scale = angles.attention_factor},
                                                  device_->stream(0)));
}

namespace {

double MaskedWeight(const Dataset& dataset, int64_t row, const Masking& masking) {
  double sum = 0.0;
  const float* weights = dataset.weights(row);
  for (int64_t t = 0; t < dataset.tokens(row); ++t) {
    if (weights[t] == 0.0f) continue;
    const int32_t id = dataset.ids(row)[t];
    if (MaskOf(masking, dataset.mask_tokens(), row, t, id).chosen) sum += weights[t];
  }
  return sum;
}

}  // namespace

double LossWeight(const Dataset& dataset, const MicroBatch& rows, const Masking& masking) {
  if (dataset.has_documents()) return static_cast<double>(rows.size());
  double sum = 0.0;
  for (int64_t row : rows) {
    if (dataset.is_masked()) {
      sum += MaskedWeight(dataset, row, masking);
      continue;
    }
    for (int64_t t = 0; dataset.has_token_labels() && t < dataset.tokens(row); ++t)
      sum += dataset.token_labels(row)[t] == kNoTokenLabel ? 0.0 : 1.0;
    if (dataset.has_token_labels()) continue;
    const float* weights = dataset.weights(row);
    for (int64_t t = dataset.has_sources() ? 0 : 1; t < dataset.tokens(row); ++t) sum += weights[t];
  }
  return sum;
}

}  // namespace snug::train
