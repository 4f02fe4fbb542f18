#include "server/data/prepare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "server/job/random_id.h"
#include "server/node/process.h"

namespace snug::server {
namespace {

// Raise when snug-prepare's output changes for the same input.
constexpr const char* kFormatVersion = "3";
constexpr const char* kPartMark = ".part-";  // <hash>.part-<random>: a run that has not ended.
constexpr size_t kMaxRememberedHashes = 4096;
constexpr int kExitBadInput = 2;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool Ready(const std::string& dir) { return Exists(dir + "/dataset.safetensors"); }

// No fault of the user's: the disk, the machine, or a mistake in snug-prepare.
absl::Status PrepareFailed(const RunResult& result, absl::string_view message) {
  const std::string ending = result.signal ? absl::StrCat("signal ", result.signal)
                                           : absl::StrCat("exit code ", result.exit_code);
  return WithReason(
      absl::InternalError(absl::StrCat("snug-prepare ended with ", ending, ": ", message)),
      "PREPARE_FAILED");
}

// The last line of stderr is a JSON object: {"reason", "message", "field", "file", "line"}.
absl::Status ErrorOf(const RunResult& result) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(result.err), '\n');
  const nlohmann::json said = nlohmann::json::parse(lines.back(), nullptr, false);
  if (!said.is_object()) return PrepareFailed(result, lines.back());
  const auto text = [&](const char* key) {
    const auto found = said.find(key);
    return found != said.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (result.exit_code != kExitBadInput) return PrepareFailed(result, text("message"));
  std::string message = text("message");
  std::string place = text("file");
  const auto line = said.find("line");
  if (!place.empty() && line != said.end() && line->is_number_integer())
    absl::StrAppend(&place, ":", line->get<int64_t>());
  if (!place.empty() && !absl::StrContains(message, place))
    message = absl::StrCat(place, ": ", message);
  const std::string field = text("field").empty() ? "dataset" : text("field");
  const std::string reason = text("reason").empty() ? "BAD_DATASET" : text("reason");
  return InvalidRequest({{absl::StrCat("spec.", field), message, reason}});
}

// Two daemons' or two runs' results for one hash are the same: the first stays.
absl::Status MoveIntoPlace(const std::string& part, const std::string& folder) {
  if (renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), RENAME_NOREPLACE) == 0)
    return absl::OkStatus();
  if (errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", part, " to ", folder));
  std::error_code ignored;
  std::filesystem::remove_all(part, ignored);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> Preparer::ContentHash(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const std::string key =
      absl::StrCat(path, "|", status.st_dev, "|", status.st_ino, "|", status.st_size, "|",
                   status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec);
  {
    absl::MutexLock lock(&mutex_);
    if (auto found = hashes_.find(key); found != hashes_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(std::string hash, Sha256File(path));
  absl::MutexLock lock(&mutex_);
  if (hashes_.size() >= kMaxRememberedHashes) hashes_.clear();
  hashes_[key] = hash;
  return hash;
}

absl::StatusOr<std::string> Preparer::FolderOf(const std::string& dataset, const v1::JobSpec& spec,
                                               const std::string& model_dir) {
  ASSIGN_OR_RETURN(std::string key, ContentHash(dataset));
  // What decides ids, the stop token and the chat form. A model for pre-tokenised rows may lack the
  // tokenizer.
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "config.json"}) {
    const std::string path = absl::StrCat(model_dir, "/", name);
    absl::StrAppend(&key, "|");
    if (!Exists(path)) continue;
    ASSIGN_OR_RETURN(const std::string hash, ContentHash(path));
    absl::StrAppend(&key, hash);
  }
  const bool split = dataset == spec.dataset() && spec.eval_split() > 0.0;
  absl::StrAppend(&key, "|", spec.training().max_seq_length(), "|", kFormatVersion);
  if (split) absl::StrAppend(&key, "|", spec.eval_split(), "|", spec.training().seed());
  return absl::StrCat(settings_.datasets_dir, "/", Sha256Hex(key).substr(0, 32));
}

absl::StatusOr<PreparedFolders> Preparer::Locate(const v1::JobSpec& spec,
                                                 const std::string& model_dir) {
  PreparedFolders folders;
  ASSIGN_OR_RETURN(folders.train, FolderOf(spec.dataset(), spec, model_dir));
  if (spec.eval_split() > 0.0) folders.eval = folders.train + "-eval";
  if (!spec.eval_dataset().empty()) {
    ASSIGN_OR_RETURN(folders.eval, FolderOf(spec.eval_dataset(), spec, model_dir));
  }
  folders.ready = Ready(folders.train) && (folders.eval.empty() || Ready(folders.eval));
  return folders;
}

absl::StatusOr<PreparedFolders> Preparer::Prepare(const v1::JobSpec& spec,
                                                  const std::string& model_dir,
                                                  const Progress& progress) {
  ASSIGN_OR_RETURN(PreparedFolders folders, Locate(spec, model_dir));
  if (folders.ready) return folders;
  const bool split = spec.eval_split() > 0.0;
  if (!Ready(folders.train) || (split && !Ready(folders.eval)))
    RETURN_IF_ERROR(RunPrepare({.dataset = spec.dataset(),
                                .output = folders.train,
                                .eval_split = spec.eval_split(),
                                .eval_output = split ? folders.eval : ""},
                               spec, model_dir, progress));
  if (!split && !folders.eval.empty() && !Ready(folders.eval))
    RETURN_IF_ERROR(RunPrepare({.dataset = spec.eval_dataset(), .output = folders.eval}, spec,
                               model_dir, progress));
  folders.ready = true;
  return folders;
}

absl::Status Preparer::RunPrepare(const Job& job, const v1::JobSpec& spec,
                                  const std::string& model_dir, const Progress& progress) {
  const std::string mark = absl::StrCat(kPartMark, RandomHex(8));
  RunOptions run;
  run.argv = {settings_.python,
              "-B",
              settings_.script,
              "--model",
              model_dir,
              "--dataset",
              job.dataset,
              "--output",
              job.output + mark,
              "--max-seq-length",
              absl::StrCat(spec.training().max_seq_length()),
              "--memory-bytes",
              absl::StrCat(settings_.memory_bytes),
              "--cpu-seconds",
              absl::StrCat(absl::ToInt64Seconds(settings_.timeout))};
  if (!job.eval_output.empty()) {
    for (std::string argument :
         {std::string("--eval-split"), absl::StrCat(job.eval_split), std::string("--eval-output"),
          job.eval_output + mark, std::string("--seed"), absl::StrCat(spec.training().seed())})
      run.argv.push_back(std::move(argument));
  }
  run.timeout = settings_.timeout;
  run.cancelled = progress.cancelled;
  run.on_stderr_line = [&](const std::string& line) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "progress: ") && progress.say) progress.say(std::string(text));
  };
  ASSIGN_OR_RETURN(const RunResult result, Run(run));
  if (result.exit_code != 0) return ErrorOf(result);
  if (!job.eval_output.empty())
    RETURN_IF_ERROR(MoveIntoPlace(job.eval_output + mark, job.eval_output));
  return MoveIntoPlace(job.output + mark, job.output);
}

void Preparer::RemoveLeftovers() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(settings_.datasets_dir, ignored))
    if (absl::StrContains(entry.path().filename().string(), kPartMark))
      std::filesystem::remove_all(entry.path(), ignored);
}

}  // namespace snug::server
