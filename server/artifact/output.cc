#include "server/artifact/output.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/safetensors.h"

namespace snug::server {
namespace {

constexpr size_t kMaxOutputFiles = 10'000;  // A sharded model of 10 TB has fewer.

absl::Status CheckFilesThere(const std::vector<OutputFile>& files, bool adapter) {
  const std::vector<std::string> wanted =
      adapter ? std::vector<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                         "metrics.jsonl"}
              : std::vector<std::string>{"config.json", "metrics.jsonl"};
  for (const std::string& path : wanted) {
    const bool there = std::any_of(files.begin(), files.end(), [&](const OutputFile& file) {
      return file.path == path && file.bytes > 0;
    });
    if (!there) return absl::DataLossError(absl::StrCat("the output has no ", path));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const std::string& dir, const program::Program& program, bool adapter) {
  if (!adapter) {
    ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadModelIndex(dir));
    return program::CheckWeights(program, index);
  }
  ASSIGN_OR_RETURN(const program::TensorIndex index,
                   program::ReadSafetensorsHeader(dir + "/adapter_model.safetensors"));
  return program::CheckAdapter(program, index);
}

absl::StatusOr<ArtifactRecord> HashFiles(const std::string& dir,
                                         const std::vector<OutputFile>& files,
                                         const HashWatch& watch) {
  ArtifactRecord record{.dir = dir};
  std::string list;
  for (const OutputFile& file : files) {
    ASSIGN_OR_RETURN(const std::string hash, Sha256File(absl::StrCat(dir, "/", file.path), watch));
    absl::StrAppend(&list, hash, "  ", file.path, "\n");
    record.bytes += file.bytes;
  }
  record.sha256 = Sha256Hex(list);
  return record;
}

}  // namespace

absl::StatusOr<std::vector<OutputFile>> ListOutput(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<OutputFile> files;
  fs::recursive_directory_iterator walk(dir, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    if (walk->is_directory(error) && !walk->is_symlink(error)) continue;
    if (!walk->is_regular_file(error) || walk->is_symlink(error))
      return absl::DataLossError(absl::StrCat(walk->path().string(), " is no regular file"));
    files.push_back({fs::relative(walk->path(), dir, error).string(),
                     static_cast<int64_t>(walk->file_size(error))});
    if (files.size() > kMaxOutputFiles)
      return absl::DataLossError(absl::StrCat(dir, " has more than ", kMaxOutputFiles, " files"));
  }
  if (error) return absl::DataLossError(absl::StrCat("cannot list ", dir, ": ", error.message()));
  std::sort(files.begin(), files.end(),
            [](const OutputFile& a, const OutputFile& b) { return a.path < b.path; });
  return files;
}

absl::StatusOr<ArtifactRecord> VerifyOutput(const std::string& attempt_dir,
                                            const v1::WorkerResult& result,
                                            const program::Program& program, bool adapter) {
  const std::string dir = attempt_dir + "/output";
  if (!result.output_dir().empty() && result.output_dir() != dir)
    return absl::DataLossError(
        absl::StrCat("the result names ", result.output_dir(), " as its output, not ", dir));
  ASSIGN_OR_RETURN(const std::vector<OutputFile> files, ListOutput(dir));
  RETURN_IF_ERROR(CheckFilesThere(files, adapter));
  RETURN_IF_ERROR(CheckTensors(dir, program, adapter));
  return HashFiles(dir, files, nullptr);
}

absl::StatusOr<ArtifactRecord> HashOutput(const std::string& dir, const HashWatch& watch) {
  ASSIGN_OR_RETURN(const std::vector<OutputFile> files, ListOutput(dir));
  return HashFiles(dir, files, watch);
}

}  // namespace snug::server
