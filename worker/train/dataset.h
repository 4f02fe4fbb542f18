// A prepared dataset, mapped: token ids, loss weights, row offsets. Checked once when it is opened,
// so that no step meets a bad row.
#ifndef WORKER_TRAIN_DATASET_H_
#define WORKER_TRAIN_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/weights/mapped_file.h"

namespace snug::train {

class Dataset {
 public:
  // `vocabulary`: every id lies below it. `source`: what the job calls the file that the folder was
  // made of; jobs with equal files share a folder.
  static absl::StatusOr<Dataset> Open(const std::string& folder, int64_t vocabulary,
                                      std::string source = "dataset");

  int64_t rows() const { return static_cast<int64_t>(row_tokens_.size()); }
  const std::vector<int64_t>& row_tokens() const { return row_tokens_; }
  const int32_t* ids(int64_t row) const { return ids_ + offsets_[row]; }
  // weights(row)[t]: of predicting token t of the row; the first is 0.
  const float* weights(int64_t row) const { return weights_ + offsets_[row]; }
  // Where the row stands in the user's file: "train.jsonl:7", lines from 1. Without source lines:
  // its number, from 0.
  bool has_source_lines() const { return lines_ != nullptr; }
  std::string NameOf(int64_t row) const;
  // Of the file, as dataset.json says it; a checkpoint names what it was trained on.
  const std::string& sha256() const { return sha256_; }
  // The id of the first token that was added to the tokenizer; 0: none was.
  int64_t first_added() const { return first_added_; }

 private:
  absl::Status Check(const std::string& path, int64_t vocabulary) const;

  weights::MappedFile file_;
  const int32_t* ids_ = nullptr;
  const float* weights_ = nullptr;
  const int64_t* offsets_ = nullptr;
  const int64_t* lines_ = nullptr;  // Or null: made by another program.
  std::vector<int64_t> row_tokens_;
  std::string source_;
  std::string sha256_;
  int64_t first_added_ = 0;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_DATASET_H_
