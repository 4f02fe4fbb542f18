#include "worker/train/dataset.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/augmentation.h"
#include "worker/program/files/json.h"
#include "worker/program/files/safetensors.h"

namespace snug::train {
namespace {

// dataset.json names every file of the dataset, and a folder may have a million images.
constexpr program::JsonLimits kAboutLimits = {
    .bytes = int64_t{512} << 20, .values = 2'000'000, .depth = 4};

absl::StatusOr<const program::TensorEntry*> Find(const program::TensorIndex& index,
                                                 const std::string& path, const char* name,
                                                 const char* dtype) {
  const auto found = index.find(name);
  if (found == index.end() || found->second.dtype != dtype || found->second.shape.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": needs a tensor '", name, "' of type ", dtype, " with one dimension"));
  }
  return &found->second;
}

// The mapping begins at a page, so that a value can be read where it lies when its place in the
// file is a multiple of its size.
template <typename Value>
absl::StatusOr<const Value*> InPlace(const weights::MappedFile& file,
                                     const program::TensorEntry& entry) {
  if (entry.begin % static_cast<int64_t>(sizeof(Value)) == 0)
    return reinterpret_cast<const Value*>(file.data() + entry.begin);
  return absl::InvalidArgumentError(absl::StrCat(entry.file, ": a tensor of type ", entry.dtype,
                                                 " begins at byte ", entry.begin,
                                                 ", which is no multiple of ", sizeof(Value)));
}

// What dataset.json says; null where there is none.
absl::StatusOr<nlohmann::json> AboutIn(const std::string& folder) {
  absl::StatusOr<nlohmann::json> about =
      program::ReadJsonFile(folder + "/dataset.json", kAboutLimits);
  if (absl::IsNotFound(about.status())) return nlohmann::json();
  return about;
}

// What dataset.json says under a key; null where it says nothing.
nlohmann::json Said(const nlohmann::json& about, const char* key) {
  return about.is_object() && about.contains(key) ? about[key] : nlohmann::json();
}

}  // namespace

absl::StatusOr<Dataset> Dataset::Open(const std::string& folder, int64_t vocabulary,
                                      std::string source) {
  const std::string path = folder + "/dataset.safetensors";
  ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadSafetensorsHeader(path));
  ASSIGN_OR_RETURN(const auto* ids, Find(index, path, "input_ids", "I32"));
  ASSIGN_OR_RETURN(const auto* weights, Find(index, path, "loss_weights", "F32"));
  ASSIGN_OR_RETURN(const auto* offsets, Find(index, path, "row_offsets", "I64"));
  Dataset dataset;
  ASSIGN_OR_RETURN(dataset.file_, weights::MappedFile::Open(path));
  ASSIGN_OR_RETURN(dataset.ids_, InPlace<int32_t>(dataset.file_, *ids));
  ASSIGN_OR_RETURN(dataset.weights_, InPlace<float>(dataset.file_, *weights));
  ASSIGN_OR_RETURN(const int64_t* first_offset, InPlace<int64_t>(dataset.file_, *offsets));
  const int64_t rows = offsets->shape[0] - 1, tokens = ids->shape[0];
  dataset.offsets_ = {first_offset, static_cast<size_t>(rows + 1)};
  if (weights->shape[0] != tokens || rows < 1 || dataset.offset(0) != 0 ||
      dataset.offset(rows) != tokens) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokens, " ids, ", weights->shape[0],
                                                   " weights and ", rows,
                                                   " rows do not belong together"));
  }
  if (rows > program::kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", rows, " rows are more than ", program::kMaxRows));
  }
  RETURN_IF_ERROR(dataset.CountLengths(path));
  RETURN_IF_ERROR(dataset.Check(path, vocabulary));
  RETURN_IF_ERROR(dataset.ReadSources(index, path, vocabulary));
  // All of it was read; a step reads its own rows.
  dataset.file_.Release(0, dataset.file_.bytes());
  if (index.contains("source_line")) {
    ASSIGN_OR_RETURN(const auto* lines, Find(index, path, "source_line", "I64"));
    if (lines->shape[0] != rows)
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", lines->shape[0], " source lines for ", rows, " rows"));
    ASSIGN_OR_RETURN(dataset.lines_, InPlace<int64_t>(dataset.file_, *lines));
  }
  RETURN_IF_ERROR(dataset.ReadLabels(index, path));
  RETURN_IF_ERROR(dataset.ReadImages(index, path));
  ASSIGN_OR_RETURN(dataset.second_begins_, dataset.OfRows(index, path, "second_begins"));
  RETURN_IF_ERROR(dataset.ReadAbout(folder, vocabulary));
  dataset.source_ = std::move(source);
  return dataset;
}

absl::Status Dataset::ReadAbout(const std::string& folder, int64_t vocabulary) {
  ASSIGN_OR_RETURN(const nlohmann::json about, AboutIn(folder));
  for (const nlohmann::json& name : Said(about, "label_names"))
    if (name.is_string()) label_names_.push_back(name.get<std::string>());
  const nlohmann::json sha256 = Said(about, "sha256"), first = Said(about, "first_added_id");
  if (sha256.is_string()) sha256_ = sha256.get<std::string>();
  if (first.is_number_integer()) first_added_ = first.get<int64_t>();
  const nlohmann::json mask = Said(about, "mask_token_id"), size = Said(about, "mask_vocabulary");
  if (mask.is_null()) return absl::OkStatus();
  const auto within = [&](const nlohmann::json& number, int64_t least, int64_t most) {
    return number.is_number_integer() && number >= least && number <= most;
  };
  if (!within(mask, 0, vocabulary - 1) || !within(size, 1, vocabulary))
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/dataset.json: mask_token_id ", mask.dump(), " and mask_vocabulary ",
                     size.dump(), " are not within the model's vocabulary of ", vocabulary));
  mask_tokens_ = {mask.get<int32_t>(), size.get<int64_t>()};
  return absl::OkStatus();
}

absl::Status Dataset::ReadSources(const program::TensorIndex& index, const std::string& path,
                                  int64_t vocabulary) {
  if (!index.contains("source_ids")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto* ids, Find(index, path, "source_ids", "I32"));
  ASSIGN_OR_RETURN(const auto* offsets, Find(index, path, "source_offsets", "I64"));
  ASSIGN_OR_RETURN(source_ids_, InPlace<int32_t>(file_, *ids));
  source_offsets_ = file_.data() + offsets->begin;
  const int64_t rows = lengths_.rows;
  if (offsets->shape[0] != rows + 1 || SourceOffset(0) != 0 || SourceOffset(rows) != ids->shape[0])
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", ids->shape[0], " ids of ",
                                                   offsets->shape[0] - 1,
                                                   " sources do not belong to ", rows, " rows"));
  for (int64_t row = 0; row < rows; ++row) {
    if (SourceOffset(row + 1) <= SourceOffset(row))
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the source of row ", row, " is empty"));
    source_lengths_.Add(source_tokens(row));
  }
  for (int64_t t = 0; t < ids->shape[0]; ++t) {
    if (source_ids_[t] >= 0 && source_ids_[t] < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": source token ", t, ": id ",
                                                   source_ids_[t],
                                                   " is not below the vocabulary's ", vocabulary));
  }
  return absl::OkStatus();
}

int64_t Dataset::SourceOffset(int64_t row) const {
  int64_t offset = 0;
  std::memcpy(&offset, source_offsets_ + row * static_cast<int64_t>(sizeof offset), sizeof offset);
  return offset;
}

absl::StatusOr<const int32_t*> Dataset::OfRows(const program::TensorIndex& index,
                                               const std::string& path, const char* name) const {
  if (!index.contains(name)) return nullptr;
  ASSIGN_OR_RETURN(const auto* found, Find(index, path, name, "I32"));
  if (found->shape[0] == lengths_.rows) return InPlace<int32_t>(file_, *found);
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", found->shape[0], " ", name, " for ", lengths_.rows, " rows"));
}

// Classes are I32 [rows], numbers F32 [rows, outputs], those of tokens I32 [tokens].
absl::Status Dataset::ReadLabels(const program::TensorIndex& index, const std::string& path) {
  if (index.contains("token_labels")) {
    ASSIGN_OR_RETURN(const auto* labels, Find(index, path, "token_labels", "I32"));
    if (labels->shape[0] != lengths_.tokens)
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", labels->shape[0], " token labels for ", lengths_.tokens, " tokens"));
    ASSIGN_OR_RETURN(token_labels_, InPlace<int32_t>(file_, *labels));
  }
  const auto found = index.find("labels");
  if (found == index.end() || found->second.dtype != "F32") {
    ASSIGN_OR_RETURN(labels_, OfRows(index, path, "labels"));
    return absl::OkStatus();
  }
  const program::TensorEntry& entry = found->second;
  if (entry.shape.size() != 2 || entry.shape[0] != lengths_.rows || entry.shape[1] < 1)
    return absl::InvalidArgumentError(absl::StrCat(path, ": labels of type F32 need the shape [",
                                                   lengths_.rows, ", outputs of the head]"));
  ASSIGN_OR_RETURN(targets_, InPlace<float>(file_, entry));
  targets_per_row_ = entry.shape[1];
  for (int64_t i = 0; i < lengths_.rows * targets_per_row_; ++i) {
    if (!std::isfinite(targets_[i]))
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": row ", i / targets_per_row_, ": a label is not finite"));
  }
  return absl::OkStatus();
}

// Pixels are U8 [rows, size, size, channels], what is read of them F32 [channels, 256].
absl::Status Dataset::ReadImages(const program::TensorIndex& index, const std::string& path) {
  const auto pixels = index.find("pixels"), values = index.find("pixel_values");
  if (pixels == index.end()) return absl::OkStatus();
  const std::vector<int64_t>& shape = pixels->second.shape;
  const bool known = pixels->second.dtype == "U8" && shape.size() == 4 &&
                     shape[0] == lengths_.rows && shape[1] == shape[2] && shape[1] >= 1 &&
                     shape[3] >= 1 && values != index.end() && values->second.dtype == "F32" &&
                     values->second.shape == std::vector<int64_t>{shape[3], kPixelValues};
  if (!known)
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": images need pixels U8 [", lengths_.rows,
        ", size, size, channels] and pixel_values F32 [channels, ", kPixelValues, "]"));
  pixels_ = reinterpret_cast<const uint8_t*>(file_.data() + pixels->second.begin);
  ASSIGN_OR_RETURN(pixel_values_, InPlace<float>(file_, values->second));
  image_size_ = shape[1];
  image_channels_ = shape[3];
  for (int64_t i = 0; i < image_channels_ * kPixelValues; ++i) {
    if (!std::isfinite(pixel_values_[i]))
      return absl::InvalidArgumentError(absl::StrCat(path, ": pixel_values are not finite"));
  }
  return ReadOriginals(index, path);
}

// U8 [bytes], one behind another; offsets I64 [rows + 1] of each; widths I32 [rows] in pixels.
absl::Status Dataset::ReadOriginals(const program::TensorIndex& index, const std::string& path) {
  if (!index.contains("originals")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto* pixels, Find(index, path, "originals", "U8"));
  ASSIGN_OR_RETURN(const auto* offsets, Find(index, path, "original_offsets", "I64"));
  ASSIGN_OR_RETURN(original_widths_, OfRows(index, path, "original_widths"));
  ASSIGN_OR_RETURN(original_offsets_, InPlace<int64_t>(file_, *offsets));
  const int64_t rows = lengths_.rows, most = program::kOriginalSides * image_size_;
  bool whole = original_widths_ != nullptr && offsets->shape[0] == rows + 1 &&
               original_offsets_[0] == 0 && original_offsets_[rows] == pixels->shape[0];
  for (int64_t row = 0; whole && row < rows; ++row) {
    const int64_t width = original_widths_[row], line = width * image_channels_;
    const int64_t begin = original_offsets_[row], end = original_offsets_[row + 1];
    whole = width >= 1 && width <= most && end > begin && end - begin >= line &&
            end - begin <= most * line && (end - begin) % line == 0;
  }
  if (!whole)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": originals need original_offsets I64 [rows + 1] and original_widths ",
                     "I32 [rows] of whole images, whose sides are at most ", most));
  originals_ = reinterpret_cast<const uint8_t*>(file_.data() + pixels->begin);
  return absl::OkStatus();
}

Picture Dataset::original(int64_t row) const {
  const int64_t width = original_widths_[row], line = width * image_channels_;
  const int64_t begin = original_offsets_[row], bytes = original_offsets_[row + 1] - begin;
  return {originals_ + begin, bytes / line, width, image_channels_, line};
}

std::string Dataset::NameOf(int64_t row) const {
  return has_source_lines() ? absl::StrCat(source_, ":", lines_[row]) : absl::StrCat(row);
}

// Each row ends behind where it begins, so that all of them lie within the file. The offsets are
// compared, because the difference of two that are wrong need not be a number of 64 bits.
absl::Status Dataset::CountLengths(const std::string& path) {
  const auto rows = static_cast<int64_t>(offsets_.size()) - 1;
  for (int64_t row = 0; row < rows; ++row) {
    if (offset(row + 1) <= offset(row))
      return absl::InvalidArgumentError(absl::StrCat(path, ": row ", row, " is empty"));
    lengths_.Add(tokens(row));
  }
  return absl::OkStatus();
}

absl::Status Dataset::Check(const std::string& path, int64_t vocabulary) const {
  for (int64_t row = 0; row < lengths_.rows; ++row) {
    for (int64_t t = 0; t < tokens(row); ++t) {
      const int32_t id = ids(row)[t];
      if (id < 0 || id >= vocabulary) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": row ", row, ", token ", t, ": id ",
                                                       id, " is not below the vocabulary's ",
                                                       vocabulary));
      }
      if (!std::isfinite(weights(row)[t])) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": row ", row, ", token ", t, ": its loss weight is not finite"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace snug::train
