#include "server/artifact/checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "server/artifact/manifest.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/transient.h"

namespace snug::server {
namespace {

// It stays in its folder.
bool IsPlainPath(const std::string& path) {
  const std::vector<std::string> names = absl::StrSplit(path, '/');
  return absl::c_all_of(
      names, [](const std::string& name) { return !name.empty() && name != "." && name != ".."; });
}

absl::StatusOr<int64_t> VerifyFile(const std::string& path, const nlohmann::json& entry,
                                   const HashWatch& watch) {
  struct stat status {};
  const bool found = lstat(path.c_str(), &status) == 0;
  if (!found && errno != ENOENT) return absl::ErrnoToStatus(errno, absl::StrCat("no ", path));
  if (!found || !S_ISREG(status.st_mode))
    return absl::DataLossError(absl::StrCat(path, " is missing"));
  if (!entry.is_object() || !entry.contains("sha256"))
    return absl::DataLossError(absl::StrCat("the manifest has no sha256 for ", path));
  const int64_t bytes = IntegerIn(entry, "bytes");
  if (bytes != status.st_size)
    return absl::DataLossError(
        absl::StrCat(path, " has ", status.st_size, " bytes; its manifest says ", bytes));
  ASSIGN_OR_RETURN(const std::string hash, Sha256File(path, watch));
  if (entry["sha256"] != hash)
    return absl::DataLossError(absl::StrCat(path, " has another content than its manifest says"));
  return bytes;
}

}  // namespace

std::optional<CheckpointName> ParseCheckpointName(const std::string& name) {
  absl::string_view rest = name;
  CheckpointName parsed;
  const size_t dot = rest.rfind(".e");
  if (!absl::ConsumePrefix(&rest, "step-") || dot == std::string::npos) return std::nullopt;
  const absl::string_view step = rest.substr(0, dot - 5), epoch = rest.substr(dot - 5 + 2);
  if (!absl::SimpleAtoi(step, &parsed.step) || !absl::SimpleAtoi(epoch, &parsed.epoch) ||
      parsed.step < 0 || parsed.epoch < 1)
    return std::nullopt;
  return parsed;
}

absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& checkpoints_dir) {
  std::vector<std::pair<CheckpointName, std::string>> found;
  std::error_code error, ignored;
  std::filesystem::directory_iterator entries(checkpoints_dir, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const auto name = ParseCheckpointName(entries->path().filename().string());
    if (name && entries->is_directory(ignored) && !entries->is_symlink(ignored))
      found.emplace_back(*name, entries->path().string());
  }
  if (error && error.value() != ENOENT)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", checkpoints_dir));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.step, a.first.epoch) > std::tie(b.first.step, b.first.epoch);
  });
  std::vector<std::string> dirs;
  for (auto& [name, dir] : found) dirs.push_back(std::move(dir));
  return dirs;
}

absl::StatusOr<CheckpointRecord> VerifyCheckpoint(const std::string& job, const std::string& dir,
                                                  const HashWatch& watch) {
  ASSIGN_OR_RETURN(const CheckpointManifest read, ReadCheckpointManifest(dir));
  const auto& [name, text, manifest] = read;
  CheckpointRecord record{.job = job,
                          .step = name.step,
                          .epoch = name.epoch,
                          .manifest_sha256 = Sha256Hex(text),
                          .dir = dir};
  for (const auto& [file, entry] : manifest["files"].items()) {
    if (!IsPlainPath(file))
      return absl::DataLossError(absl::StrCat(dir, "/MANIFEST.json names the file \"", file, "\""));
    ASSIGN_OR_RETURN(const int64_t bytes, VerifyFile(absl::StrCat(dir, "/", file), entry, watch));
    record.bytes += bytes;
  }
  return record;
}

absl::StatusOr<std::string> FolderAt(const std::string& job, const std::string& checkpoints_dir,
                                     int64_t step) {
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs, ListCheckpoints(checkpoints_dir));
  for (const std::string& dir : dirs)
    if (ParseCheckpointName(std::filesystem::path(dir).filename().string())->step == step)
      return dir;
  return WithReason(
      absl::NotFoundError(absl::StrCat("job \"", job, "\" has no checkpoint of step ", step)),
      "CHECKPOINT_NOT_FOUND");
}

absl::StatusOr<CheckpointRecord> FindAt(const std::string& job, const std::string& checkpoints_dir,
                                        int64_t step) {
  absl::Status first;
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs, ListCheckpoints(checkpoints_dir));
  for (const std::string& dir : dirs) {
    if (ParseCheckpointName(std::filesystem::path(dir).filename().string())->step != step) continue;
    absl::StatusOr<CheckpointRecord> record = VerifyCheckpoint(job, dir);
    if (record.ok() || IsTransient(record.status())) return record;
    first.Update(absl::DataLossError(record.status().message()));
  }
  if (!first.ok()) return WithReason(first, kCheckpointsDamaged);
  return WithReason(absl::NotFoundError(absl::StrCat(
                        "job \"", IdIn(job), "\" has no checkpoint of step ", step, " any more")),
                    "CHECKPOINT_NOT_FOUND");
}

absl::StatusOr<CheckpointScan> FindNewest(const std::string& job,
                                          const std::string& checkpoints_dir) {
  CheckpointScan scan;
  absl::Status first;
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs, ListCheckpoints(checkpoints_dir));
  for (const std::string& dir : dirs) {
    absl::StatusOr<CheckpointRecord> record = VerifyCheckpoint(job, dir);
    if (record.ok()) {
      scan.records.push_back(*record);
      scan.newest = *std::move(record);
      return scan;
    }
    if (IsTransient(record.status())) return record.status();  // Not damaged: not read.
    if (first.ok()) first = record.status();
    const auto name = ParseCheckpointName(std::filesystem::path(dir).filename().string());
    scan.records.push_back({.job = job,
                            .step = name->step,
                            .epoch = name->epoch,
                            .dir = dir,
                            .state = CheckpointRecord::kCorrupt});
  }
  if (!first.ok())
    return WithReason(absl::DataLossError(absl::StrCat(
                          "every checkpoint of the job is damaged, first: ", first.message())),
                      kCheckpointsDamaged);
  return scan;
}

}  // namespace snug::server
