#include "worker/train/dataset.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/augmentation.h"
#include "worker/program/safetensors.h"

namespace snug::train {
namespace {

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

// What dataset.json says of the dataset; null where it says nothing.
nlohmann::json Said(const std::string& folder, const char* key) {
  std::ifstream file(folder + "/dataset.json");
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(key) ? json[key] : nlohmann::json();
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
  dataset.ids_ = reinterpret_cast<const int32_t*>(dataset.file_.data() + ids->begin);
  dataset.weights_ = reinterpret_cast<const float*>(dataset.file_.data() + weights->begin);
  const int64_t rows = offsets->shape[0] - 1, tokens = ids->shape[0];
  dataset.offsets_ = {reinterpret_cast<const int64_t*>(dataset.file_.data() + offsets->begin),
                      static_cast<size_t>(rows + 1)};
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
    dataset.lines_ = reinterpret_cast<const int64_t*>(dataset.file_.data() + lines->begin);
  }
  RETURN_IF_ERROR(dataset.ReadLabels(index, path));
  RETURN_IF_ERROR(dataset.ReadImages(index, path));
  RETURN_IF_ERROR(dataset.ReadMaskTokens(folder, vocabulary));
  ASSIGN_OR_RETURN(dataset.second_begins_, dataset.OfRows(index, path, "second_begins"));
  for (const nlohmann::json& name : Said(folder, "label_names"))
    if (name.is_string()) dataset.label_names_.push_back(name.get<std::string>());
  const nlohmann::json sha256 = Said(folder, "sha256"), first = Said(folder, "first_added_id");
  if (sha256.is_string()) dataset.sha256_ = sha256.get<std::string>();
  if (first.is_number_integer()) dataset.first_added_ = first.get<int64_t>();
  dataset.source_ = std::move(source);
  return dataset;
}

absl::Status Dataset::ReadMaskTokens(const std::string& folder, int64_t vocabulary) {
  const nlohmann::json mask = Said(folder, "mask_token_id"), size = Said(folder, "mask_vocabulary");
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
  source_ids_ = reinterpret_cast<const int32_t*>(file_.data() + ids->begin);
  source_offsets_ = {reinterpret_cast<const int64_t*>(file_.data() + offsets->begin),
                     static_cast<size_t>(offsets->shape[0])};
  if (source_offsets_.size() != offsets_.size() || source_offsets_.front() != 0 ||
      source_offsets_.back() != ids->shape[0])
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", ids->shape[0], " ids of ", source_offsets_.size() - 1,
                     " sources do not belong to ", lengths_.rows, " rows"));
  for (int64_t row = 0; row < lengths_.rows; ++row) {
    if (source_tokens(row) < 1)
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

absl::StatusOr<const int32_t*> Dataset::OfRows(const program::TensorIndex& index,
                                               const std::string& path, const char* name) const {
  if (!index.contains(name)) return nullptr;
  ASSIGN_OR_RETURN(const auto* found, Find(index, path, name, "I32"));
  if (found->shape[0] == lengths_.rows)
    return reinterpret_cast<const int32_t*>(file_.data() + found->begin);
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
    token_labels_ = reinterpret_cast<const int32_t*>(file_.data() + labels->begin);
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
  targets_ = reinterpret_cast<const float*>(file_.data() + entry.begin);
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
                     shape[0] == lengths_.rows && shape[1] == shape[2] && values != index.end() &&
                     values->second.dtype == "F32" &&
                     values->second.shape == std::vector<int64_t>{shape[3], kPixelValues};
  if (!known)
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": images need pixels U8 [", lengths_.rows,
        ", size, size, channels] and pixel_values F32 [channels, ", kPixelValues, "]"));
  pixels_ = reinterpret_cast<const uint8_t*>(file_.data() + pixels->second.begin);
  pixel_values_ = reinterpret_cast<const float*>(file_.data() + values->second.begin);
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
  original_offsets_ = reinterpret_cast<const int64_t*>(file_.data() + offsets->begin);
  const int64_t rows = lengths_.rows, most = program::kOriginalSides * image_size_;
  bool whole = original_widths_ != nullptr && offsets->shape[0] == rows + 1 &&
               original_offsets_[0] == 0 && original_offsets_[rows] == pixels->shape[0];
  for (int64_t row = 0; whole && row < rows; ++row) {
    const int64_t width = original_widths_[row], line = width * image_channels_;
    const int64_t bytes = original_offsets_[row + 1] - original_offsets_[row];
    whole =
        width >= 1 && width <= most && bytes >= line && bytes <= most * line && bytes % line == 0;
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

// None is empty, so that all of them lie within the file.
absl::Status Dataset::CountLengths(const std::string& path) {
  const auto rows = static_cast<int64_t>(offsets_.size()) - 1;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t tokens = offset(row + 1) - offset(row);
    if (tokens < 1)
      return absl::InvalidArgumentError(absl::StrCat(path, ": row ", row, " is empty"));
    lengths_.Add(tokens);
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
