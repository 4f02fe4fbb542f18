// A prepared dataset, mapped: token ids, loss weights, row offsets; of targets their sources.
// Checked once when it is opened, so that no step meets a bad row. Copies nothing of it.
#ifndef WORKER_TRAIN_DATASET_H_
#define WORKER_TRAIN_DATASET_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/batching.h"
#include "worker/program/files/safetensors.h"
#include "worker/train/batches.h"
#include "worker/train/masking.h"
#include "worker/train/resample.h"
#include "worker/weights/mapped_file.h"

namespace snug::train {

// The class of a token that has none.
inline constexpr int32_t kNoTokenLabel = -100;

inline constexpr int64_t kPixelValues = 256;  // Of a byte.

class Dataset {
 public:
  // `vocabulary`: every id lies below it. `source`: what the job calls the file that the folder was
  // made of; jobs with equal files share a folder.
  static absl::StatusOr<Dataset> Open(const std::string& folder, int64_t vocabulary,
                                      std::string source = "dataset");

  int64_t bytes() const { return file_.bytes(); }
  // Valid while this is, where it is.
  Rows rows() const { return {offsets_, lengths_}; }
  int64_t tokens(int64_t row) const { return rows().tokens(row); }
  const int32_t* ids(int64_t row) const { return ids_ + offset(row); }
  // weights(row)[t]: of predicting token t of the row; the first is 0.
  const float* weights(int64_t row) const { return weights_ + offset(row); }
  // Where rows are documents, each has a class, or numbers, as many as the head has outputs.
  bool has_documents() const { return labels_ != nullptr || targets_ != nullptr; }
  bool has_labels() const { return labels_ != nullptr; }
  int32_t label(int64_t row) const { return labels_[row]; }
  int64_t targets_per_row() const { return targets_per_row_; }  // 0: there are none.
  const float* targets(int64_t row) const { return targets_ + row * targets_per_row_; }
  // The class of each token of the row, or kNoTokenLabel, where tokens have classes.
  bool has_token_labels() const { return token_labels_ != nullptr; }
  const int32_t* token_labels(int64_t row) const { return token_labels_ + offset(row); }
  // Where tokens are hidden and found again: those with a weight may be. The first can have one.
  bool is_masked() const { return mask_tokens_.mask >= 0; }
  const MaskTokens& mask_tokens() const { return mask_tokens_; }
  // Where each row is a target: what it is made of. A target's tokens have weights from the first
  // on.
  bool has_sources() const { return source_ids_ != nullptr; }
  int64_t source_tokens(int64_t row) const {
    return has_sources() ? SourceOffset(row + 1) - SourceOffset(row) : 0;
  }
  const int32_t* source_ids(int64_t row) const { return source_ids_ + SourceOffset(row); }
  const program::LengthCounts& source_lengths() const { return source_lengths_; }
  // Of images the bytes of each [height, width, channels], and what the model reads of a byte.
  bool has_images() const { return pixels_ != nullptr; }
  int64_t image_size() const { return image_size_; }
  int64_t image_channels() const { return image_channels_; }
  const uint8_t* pixels(int64_t row) const {
    return pixels_ + row * image_size_ * image_size_ * image_channels_;
  }
  const float* pixel_values(int64_t channel) const {
    return pixel_values_ + channel * kPixelValues;
  }
  // What crops are taken from, where images are augmented: sides of at most program::kOriginalSides
  // of the model's.
  bool has_originals() const { return originals_ != nullptr; }
  Picture original(int64_t row) const;
  // Of a pair of texts, where the second one's tokens begin; of others where the row ends.
  int64_t second_begin(int64_t row) const {
    return second_begins_ == nullptr ? tokens(row) : second_begins_[row];
  }
  // Of the classes, by their ids; empty: the dataset names none.
  const std::vector<std::string>& label_names() const { return label_names_; }
  // Where the row stands in the user's file: "train.jsonl:7", lines from 1. Without source lines:
  // its number, from 0.
  bool has_source_lines() const { return lines_ != nullptr; }
  std::string NameOf(int64_t row) const;
  // Of the file, as dataset.json says it; a checkpoint names what it was trained on.
  const std::string& sha256() const { return sha256_; }
  // The id of the first token that was added to the tokenizer; 0: none was.
  int64_t first_added() const { return first_added_; }

 private:
  int64_t SourceOffset(int64_t row) const;
  absl::Status ReadSources(const program::TensorIndex& index, const std::string& path,
                           int64_t vocabulary);
  int64_t offset(int64_t row) const { return offsets_[static_cast<size_t>(row)]; }
  // A number of each row by its tensor's name; null where there is none.
  absl::StatusOr<const int32_t*> OfRows(const program::TensorIndex& index, const std::string& path,
                                        const char* name) const;
  absl::Status ReadLabels(const program::TensorIndex& index, const std::string& path);
  absl::Status ReadAbout(const std::string& folder, int64_t vocabulary);
  absl::Status ReadImages(const program::TensorIndex& index, const std::string& path);
  absl::Status ReadOriginals(const program::TensorIndex& index, const std::string& path);
  absl::Status CountLengths(const std::string& path);
  absl::Status Check(const std::string& path, int64_t vocabulary) const;

  weights::MappedFile file_;
  const int32_t* ids_ = nullptr;
  const float* weights_ = nullptr;
  std::span<const int64_t> offsets_;  // Of the rows, and the end of the last.
  const int32_t* labels_ = nullptr;   // Or null.
  const float* targets_ = nullptr;    // Or null.
  int64_t targets_per_row_ = 0;
  const int32_t* token_labels_ = nullptr;  // Or null.
  MaskTokens mask_tokens_;
  const int32_t* source_ids_ = nullptr;  // Or null.
  // I64 [rows + 1], at any byte: snug-prepare writes it behind tensors of an odd number of I32.
  const char* source_offsets_ = nullptr;
  program::LengthCounts source_lengths_;
  const int32_t* second_begins_ = nullptr;  // Or null.
  const uint8_t* pixels_ = nullptr;         // Or null.
  const float* pixel_values_ = nullptr;
  int64_t image_size_ = 0, image_channels_ = 0;
  const uint8_t* originals_ = nullptr;  // Or null.
  const int64_t* original_offsets_ = nullptr;
  const int32_t* original_widths_ = nullptr;
  std::vector<std::string> label_names_;
  const int64_t* lines_ = nullptr;  // Or null: made by another program.
  program::LengthCounts lengths_;
  std::string source_;
  std::string sha256_;
  int64_t first_added_ = 0;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_DATASET_H_
