#include "server/data/prepared_dataset.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/prompts.h"
#include "worker/program/safetensors.h"

namespace snug::server {
namespace {

template <typename Message>
absl::StatusOr<Message> ReadJson(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::stringstream text;
  text << file.rdbuf();
  Message message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // Written by another program, perhaps a newer one.
  const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), &message, options);
  if (!parsed.ok())
    return absl::DataLossError(absl::StrCat(path, ": ", std::string(parsed.message())));
  return message;
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ReadRowTokens(const std::string& dir) {
  const std::string path = dir + "/dataset.safetensors";
  ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadSafetensorsHeader(path));
  const auto found = index.find("row_offsets");
  if (found == index.end() || found->second.dtype != "I64" || found->second.shape.size() != 1 ||
      found->second.shape[0] < 2)
    return absl::DataLossError(absl::StrCat(path, " has no row_offsets I64 [rows + 1]"));
  const program::TensorEntry& entry = found->second;
  std::vector<int64_t> offsets(static_cast<size_t>(entry.shape[0]));
  std::ifstream file(path, std::ios::binary);
  file.seekg(entry.begin);
  file.read(reinterpret_cast<char*>(offsets.data()), entry.bytes);
  if (!file) return absl::DataLossError(absl::StrCat("cannot read row_offsets of ", path));
  std::vector<int64_t> tokens(offsets.size() - 1);
  for (size_t row = 0; row < tokens.size(); ++row) {
    tokens[row] = offsets[row + 1] - offsets[row];
    if (offsets[0] != 0 || tokens[row] <= 0)
      return absl::DataLossError(absl::StrCat(path, ": row_offsets is wrong at row ", row));
  }
  return tokens;
}

absl::StatusOr<RowLengths> LengthsOf(const PreparedFolders& folders) {
  RowLengths lengths;
  ASSIGN_OR_RETURN(lengths.train, ReadRowTokens(folders.train));
  ASSIGN_OR_RETURN(lengths.longest_prompt, LongestPrompt(folders.prompts));
  if (folders.eval.empty()) return lengths;
  ASSIGN_OR_RETURN(lengths.eval, ReadRowTokens(folders.eval));
  return lengths;
}

absl::StatusOr<v1::DatasetSummary> ReadSummary(const std::string& dir) {
  return ReadJson<v1::DatasetSummary>(dir + "/summary.json");
}

absl::StatusOr<v1::PreviewDatasetResponse> ReadPreview(const std::string& path) {
  return ReadJson<v1::PreviewDatasetResponse>(path);
}

}  // namespace snug::server
