#include "server/data/prepared_dataset.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/data/prompts.h"
#include "server/node/json_file.h"
#include "worker/program/files/safetensors.h"

namespace snug::server {
namespace {

// A preview of 100 rows has 64 KiB of text each, which JSON's escapes can make six times as long.
constexpr program::JsonLimits kLimits = {
    .bytes = int64_t{64} << 20, .values = int64_t{64} << 20, .depth = 32};

template <typename Message>
absl::StatusOr<Message> ReadMessage(const std::string& path) {
  Message message;
  RETURN_IF_ERROR(ReadJsonMessage(path, kLimits, &message));
  return message;
}

constexpr int64_t kOffsetsAtOnce = 1 << 16;

// What lies between the offsets of the tensor `name`.
absl::StatusOr<program::LengthCounts> LengthsBetween(const std::string& path,
                                                     const program::TensorIndex& index,
                                                     const char* name) {
  const auto found = index.find(name);
  if (found == index.end() || found->second.dtype != "I64" || found->second.shape.size() != 1 ||
      found->second.shape[0] < 2)
    return absl::DataLossError(absl::StrCat(path, " has no ", name, " I64 [rows + 1]"));
  std::ifstream file(path, std::ios::binary);
  file.seekg(found->second.begin);
  program::LengthCounts lengths;
  std::vector<int64_t> offsets(
      static_cast<size_t>(std::min(found->second.shape[0], kOffsetsAtOnce)));
  int64_t before = 0;
  for (int64_t row = -1, end = found->second.shape[0] - 1; row < end;) {
    const int64_t count = std::min(end - row, kOffsetsAtOnce);
    file.read(reinterpret_cast<char*>(offsets.data()), count * 8);
    if (!file) return absl::DataLossError(absl::StrCat("cannot read ", name, " of ", path));
    for (int64_t i = 0; i < count; ++i, ++row) {
      const int64_t offset = offsets[static_cast<size_t>(i)];
      if (row < 0 ? offset != 0 : offset <= before)
        return absl::DataLossError(absl::StrCat(path, ": ", name, " is wrong at row ", row));
      if (row >= 0) lengths.Add(offset - before);
      before = offset;
    }
  }
  return lengths;
}

}  // namespace

absl::StatusOr<program::LengthCounts> ReadLengths(const std::string& dir) {
  const std::string path = dir + "/dataset.safetensors";
  ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadSafetensorsHeader(path));
  return LengthsBetween(path, index, "row_offsets");
}

absl::StatusOr<program::LengthCounts> ReadSourceLengths(const std::string& dir) {
  const std::string path = dir + "/dataset.safetensors";
  ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadSafetensorsHeader(path));
  if (!index.contains("source_offsets")) return program::LengthCounts();
  return LengthsBetween(path, index, "source_offsets");
}

absl::StatusOr<PreparedFacts> ReadFacts(const PreparedFolders& folders) {
  PreparedFacts facts;
  ASSIGN_OR_RETURN(facts.summary, ReadSummary(folders.train));
  RowLengths& lengths = facts.lengths;
  ASSIGN_OR_RETURN(lengths.train, ReadLengths(folders.train));
  ASSIGN_OR_RETURN(lengths.train_sources, ReadSourceLengths(folders.train));
  ASSIGN_OR_RETURN(lengths.longest_prompt, LongestPrompt(folders.prompts));
  if (folders.eval.empty()) return facts;
  ASSIGN_OR_RETURN(lengths.eval, ReadLengths(folders.eval));
  ASSIGN_OR_RETURN(lengths.eval_sources, ReadSourceLengths(folders.eval));
  return facts;
}

absl::StatusOr<v1::DatasetSummary> ReadSummary(const std::string& dir) {
  return ReadMessage<v1::DatasetSummary>(dir + "/summary.json");
}

absl::StatusOr<v1::PreviewDatasetResponse> ReadPreview(const std::string& path) {
  return ReadMessage<v1::PreviewDatasetResponse>(path);
}

}  // namespace snug::server
