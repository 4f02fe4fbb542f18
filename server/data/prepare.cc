#include "server/data/prepare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/data/prepare_command.h"
#include "server/data/prepared_dataset.h"
#include "server/data/prompts.h"
#include "server/data/sha256.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/node/process.h"
#include "server/plan/planner.h"

namespace snug::server {
namespace {

// Raise when snug-prepare's output changes for the same input.
constexpr const char* kFormatVersion = "5";
constexpr const char* kPartMark = ".part-";  // <hash>.part-<random>: a run that has not ended.
constexpr size_t kMaxRememberedHashes = 4096;
// snug-prepare stops scanning after 10 s; loading libraries and one batch of long rows come on top.
constexpr absl::Duration kPreviewTimeout = absl::Seconds(60);
constexpr absl::Duration kSayReading = absl::Seconds(1);

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool Ready(const std::string& dir) { return Exists(dir + "/dataset.safetensors"); }

// What decides ids, the stop token and the chat form. A model for pre-tokenised rows may lack the
// tokenizer.
std::vector<std::string> TokenizerFiles(const std::string& model_dir) {
  std::vector<std::string> paths;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "config.json", "chat_template.jinja"})
    paths.push_back(absl::StrCat(model_dir, "/", name));
  std::error_code ignored;
  const std::string more = model_dir + "/additional_chat_templates";
  for (const auto& entry : std::filesystem::directory_iterator(more, ignored))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Says how far the reading of a large file has come, once a second, until nobody waits for it.
HashWatch WatchOf(const Preparer::Progress& progress) {
  return [&progress, next = absl::Now() + kSayReading](int64_t done, int64_t of) mutable {
    if (progress.cancelled != nullptr && progress.cancelled->load())
      return absl::CancelledError("cancelled");
    const absl::Time now = absl::Now();
    if (now > progress.read_until)
      return absl::DeadlineExceededError(
          absl::StrCat("reading a dataset of ", FormatBytes(of), " takes longer"));
    if (now < next || !progress.say) return absl::OkStatus();
    next = now + kSayReading;
    progress.say(
        absl::StrCat("its dataset is being read: ", FormatBytes(done), " of ", FormatBytes(of)));
    return absl::OkStatus();
  };
}

// "12000 of 50000 rows", and how long the rest takes at the rate so far; as it is where no total
// is said.
std::string WithTimeLeft(absl::string_view said, absl::Time started) {
  const std::vector<absl::string_view> words = absl::StrSplit(said, ' ');
  int64_t done = 0, total = 0;
  if (words.size() < 3 || words[1] != "of" || !absl::SimpleAtoi(words[0], &done) ||
      !absl::SimpleAtoi(words[2], &total) || done <= 0 || done >= total)
    return std::string(said);
  const absl::Duration left =
      (absl::Now() - started) * (static_cast<double>(total - done) / static_cast<double>(done));
  return absl::StrCat(said, ", ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
                      " left");
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

absl::StatusOr<std::string> Preparer::ContentHash(const std::string& path,
                                                  const Progress& progress) {
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
  ASSIGN_OR_RETURN(std::string hash, Sha256File(path, WatchOf(progress)));
  absl::MutexLock lock(&mutex_);
  if (hashes_.size() >= kMaxRememberedHashes) hashes_.clear();
  hashes_[key] = hash;
  return hash;
}

absl::StatusOr<std::string> Preparer::FolderOf(const std::string& dataset, const v1::JobSpec& spec,
                                               const std::string& model_dir,
                                               const Progress& progress) {
  ASSIGN_OR_RETURN(std::string key, ContentHash(dataset, progress));
  for (const std::string& path : TokenizerFiles(model_dir)) {
    absl::StrAppend(&key, "|");
    if (!Exists(path)) continue;
    ASSIGN_OR_RETURN(const std::string hash, ContentHash(path, progress));
    absl::StrAppend(&key, hash);
  }
  for (const std::string& option : DataOptions(spec))
    absl::StrAppend(&key, "|", option.size(), ":", option);
  // How a file is read depends on its name's suffix.
  absl::StrAppend(&key, "|", std::filesystem::path(dataset).extension().string());
  const bool split = dataset == spec.dataset() && spec.eval_split() > 0.0;
  absl::StrAppend(&key, "|", spec.training().max_seq_length(), "|", kFormatVersion);
  if (split) absl::StrAppend(&key, "|", spec.eval_split(), "|", spec.training().seed());
  return absl::StrCat(settings_.datasets_dir, "/", Sha256Hex(key).substr(0, 32));
}

absl::StatusOr<PreparedFolders> Preparer::Locate(const v1::JobSpec& spec,
                                                 const std::string& model_dir,
                                                 const Progress& progress) {
  PreparedFolders folders;
  ASSIGN_OR_RETURN(folders.train, FolderOf(spec.dataset(), spec, model_dir, progress));
  if (spec.eval_split() > 0.0) folders.eval = folders.train + "-eval";
  if (!spec.eval_dataset().empty()) {
    ASSIGN_OR_RETURN(folders.eval, FolderOf(spec.eval_dataset(), spec, model_dir, progress));
  }
  folders.prompts = PromptsFile(spec, folders.train);
  folders.ready = Ready(folders.train) && (folders.eval.empty() || Ready(folders.eval)) &&
                  (folders.prompts.empty() || Exists(folders.prompts));
  return folders;
}

absl::StatusOr<PreparedFolders> Preparer::Prepare(const v1::JobSpec& spec,
                                                  const std::string& model_dir,
                                                  const Progress& progress) {
  ASSIGN_OR_RETURN(PreparedFolders folders, Locate(spec, model_dir, progress));
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
  if (!folders.prompts.empty() && !Exists(folders.prompts))
    RETURN_IF_ERROR(RunPrompts(spec, model_dir, folders.prompts, progress));
  folders.ready = true;
  return folders;
}

absl::Status Preparer::RunPrepare(const Job& job, const v1::JobSpec& spec,
                                  const std::string& model_dir, const Progress& progress) {
  const std::string mark = absl::StrCat(kPartMark, RandomHex(8));
  RunOptions run = PrepareCommand(settings_, spec, model_dir);
  const auto add = [&](const char* name, const auto& value) {
    run.argv.push_back(absl::StrCat(name, "=", value));
  };
  add("--dataset", job.dataset);
  add("--output", job.output + mark);
  if (!job.eval_output.empty()) {
    add("--eval-split", job.eval_split);
    add("--eval-output", job.eval_output + mark);
    add("--seed", spec.training().seed());
  }
  run.cancelled = progress.cancelled;
  const absl::Time started = absl::Now();
  run.on_stderr_line = [&](const std::string& line) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "progress: ") && progress.say)
      progress.say(absl::StrCat("its dataset is being prepared: ", WithTimeLeft(text, started)));
    if (absl::ConsumePrefix(&text, "note: ")) spdlog::info("dataset {}: {}", job.dataset, text);
  };
  ASSIGN_OR_RETURN(const RunResult result, Run(run));
  if (result.exit_code != 0) return PrepareError(result);
  if (!job.eval_output.empty())
    RETURN_IF_ERROR(MoveIntoPlace(job.eval_output + mark, job.eval_output));
  return MoveIntoPlace(job.output + mark, job.output);
}

absl::StatusOr<v1::PreviewDatasetResponse> Preparer::Preview(const v1::JobSpec& spec,
                                                             const std::string& model_dir,
                                                             int rows) {
  const std::string output =
      absl::StrCat(settings_.datasets_dir, "/preview", kPartMark, RandomHex(8));
  const absl::Cleanup remove = [&] { unlink(output.c_str()); };
  RunOptions run = PrepareCommand(settings_, spec, model_dir);
  run.argv.push_back("--dataset=" + spec.dataset());
  run.argv.push_back("--output=" + output);
  run.argv.push_back(absl::StrCat("--preview-rows=", rows));
  run.timeout = std::min(run.timeout, kPreviewTimeout);
  ASSIGN_OR_RETURN(const RunResult result, Run(run));
  if (result.exit_code != 0) return PrepareError(result);
  return ReadPreview(output);
}

absl::Status Preparer::RunPrompts(const v1::JobSpec& spec, const std::string& model_dir,
                                  const std::string& file, const Progress& progress) {
  const std::string texts =
      absl::StrCat(settings_.datasets_dir, "/prompts", kPartMark, RandomHex(8));
  const absl::Cleanup remove = [&] { unlink(texts.c_str()); };
  RETURN_IF_ERROR(WriteTexts(spec, texts));
  const std::string folder = std::filesystem::path(settings_.script).parent_path().string();
  RunOptions run;
  run.argv = {settings_.python,
              "-B",
              folder + "/snug_prompts.py",
              "--model=" + model_dir,
              "--prompts=" + texts,
              "--output=" + file,
              absl::StrCat("--max-tokens=", MaxPromptTokens(spec)),
              absl::StrCat("--memory-bytes=", settings_.memory_bytes),
              absl::StrCat("--cpu-seconds=", absl::ToInt64Seconds(settings_.timeout))};
  for (const std::string& option : AddedTokenOptions(spec)) run.argv.push_back(option);
  run.timeout = settings_.timeout;
  run.cancelled = progress.cancelled;
  ASSIGN_OR_RETURN(const RunResult result, Run(run));
  return result.exit_code == 0 ? absl::OkStatus() : PrepareError(result);
}

void Preparer::RemoveLeftovers() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(settings_.datasets_dir, ignored))
    if (absl::StrContains(entry.path().filename().string(), kPartMark))
      std::filesystem::remove_all(entry.path(), ignored);
}

}  // namespace snug::server
