#include "server/data/prepare.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/utf8.h"
#include "server/data/held_files.h"
#include "server/data/prepare_command.h"
#include "server/data/prepared_dataset.h"
#include "server/data/prepared_folders.h"
#include "server/data/prompts.h"
#include "server/data/sha256.h"
#include "server/failpoint.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/job/transient.h"
#include "server/node/clock.h"
#include "server/node/process.h"
#include "server/plan/planner.h"

namespace snug::server {
namespace {

// Raise when snug-prepare's output changes for the same input.
constexpr const char* kFormatVersion = "7";
constexpr size_t kMaxRememberedFacts = 256;
constexpr int kIsAnother = ESTALE;  // Of a file that is not the one that was hashed.
// snug-prepare stops scanning after 10 s; loading libraries and one batch of long rows come on top.
// Prompts are less than that.
constexpr absl::Duration kPreviewTimeout = absl::Seconds(60);

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Of a prepared folder; of none, none.
std::string DatasetFile(const std::string& dir) {
  return dir.empty() ? "" : dir + "/dataset.safetensors";
}

bool Ready(const std::string& dir) { return Exists(DatasetFile(dir)); }

// Changes when the file does.
absl::StatusOr<std::string> IdentityOf(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return absl::StrCat(path, "|", file.st_dev, "|", file.st_ino, "|", file.st_size, "|",
                      file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec);
}

// What decides ids, the stop token, the chat form, and what becomes of images. A model for
// pre-tokenised rows may lack the tokenizer.
absl::StatusOr<std::vector<std::string>> ModelFiles(const std::string& model_dir,
                                                    const Reach& reach) {
  std::vector<std::string> paths;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "generation_config.json", "config.json", "chat_template.jinja", "preprocessor_config.json"})
    paths.push_back(absl::StrCat(model_dir, "/", name));
  const std::string more = model_dir + "/additional_chat_templates";
  const absl::StatusOr<struct stat> about = StatFor(more, reach);
  if (reach.roots && !about.ok() && !absl::IsNotFound(about.status())) return about.status();
  if (!about.ok() || !S_ISDIR(about->st_mode)) return paths;
  const absl::StatusOr<std::vector<FolderEntry>> entries = ListFor(more, reach);
  if (reach.roots) RETURN_IF_ERROR(entries.status());
  if (!entries.ok()) return paths;
  for (const FolderEntry& entry : *entries) paths.push_back(absl::StrCat(more, "/", entry.name));
  return paths;
}

absl::StatusOr<HeldFiles> OpenModel(const std::string& model_dir, const Reach& reach) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, ModelFiles(model_dir, reach));
  return HeldFiles::OpenPresent(paths, reach);
}

absl::StatusOr<HeldFiles> HoldModel(const v1::JobSpec& spec, const std::string& model_dir,
                                    const Reach& reach) {
  // Of what a job made the folder is the daemon's.
  absl::StatusOr<HeldFiles> held = OpenModel(model_dir, NamesJob(spec.model()) ? Reach{} : reach);
  if (!held.ok() && IsRefused(held.status()))
    return InvalidRequest({{"spec.model",
                            absl::StrCat(spec.model(),
                                         " holds a file that this daemon does not open for the "
                                         "job's owner"),
                            "BAD_MODEL"}});
  if (absl::IsInvalidArgument(held.status()))
    return InvalidRequest(
        {{"spec.model", absl::StrCat(spec.model(), " has ", held.status().message()),
          "BAD_MODEL"}});
  return held;
}

// Of the job, the one that names these.
std::string FieldOf(const std::vector<Source>& sources) {
  return sources.size() == 1 ? sources.front().field : "datasets";
}

// What was found out of a source, as its owner may be told. A path beside the roots tells nothing
// of what is there, and neither does a name in a folder that he cannot see.
absl::Status Told(const Source& source, const absl::Status& status, const Reach& reach) {
  if (!reach.roots || !IsRefused(status)) return status;
  return InvalidRequest({{"spec." + source.field,
                          absl::StrCat(source.spec.path(),
                                       " is, or holds, a file that this daemon does not open for "
                                       "the job's owner"),
                          "BAD_DATASET"}});
}

// Writes where the rows are into `list`, for snug-prepare. Gives the field of the job that names
// them.
absl::StatusOr<std::string> ListSources(std::vector<Source> sources, const std::string& list,
                                        const Reach& reach) {
  for (Source& source : sources) RETURN_IF_ERROR(Told(source, FindPaths(source, reach), reach));
  if (const absl::Status written = WriteSources(sources, list); !written.ok())
    return WithReason(written, "PREPARE_FAILED");
  return FieldOf(sources);
}

// Of all these sources; none where one of them is not there, which is said where it is read.
std::vector<std::string> PathsOf(const std::vector<std::vector<Source>>& sets, const Reach& reach) {
  std::vector<std::string> paths;
  for (const std::vector<Source>& sources : sets) {
    for (Source source : sources) {
      if (!FindPaths(source, reach).ok()) return {};
      const absl::StatusOr<std::vector<SourceFile>> files = FilesOf(source, reach);
      if (!files.ok()) return {};
      for (const SourceFile& file : *files) paths.push_back(file.path);
    }
  }
  return paths;
}

std::vector<std::string> KeysOf(const Contents& contents) {
  std::vector<std::string> paths;
  for (const auto& [path, content] : contents) paths.push_back(path);
  return paths;
}

absl::StatusOr<std::unique_ptr<FileServer>> Serve(const std::vector<std::string>& paths,
                                                  const FileServer::Opener& open) {
  return FileServer::Start({paths.begin(), paths.end()}, open);
}

absl::StatusOr<std::unique_ptr<FileServer>> ServeModel(const HeldFiles& model) {
  return Serve(model.paths(), [&](const std::string& path) { return model.OpenAgain(path, {}); });
}

absl::Status InputChanged(const std::vector<Source>& sources) {
  return InvalidRequest(
      {{"spec." + FieldOf(sources), "it was changed while it was prepared; submit it again",
        "INPUT_CHANGED"}});
}

// What the script says of a file that the daemon could not open, where that is the machine's fault.
absl::Status Explained(const absl::Status& ran, int error) {
  const absl::Status why = absl::ErrnoToStatus(error, "cannot open a file for snug-prepare");
  return absl::IsInvalidArgument(ran) && IsTransient(why) ? why : ran;
}

// Images are evaluated as they are, whatever is drawn of those that are trained.
v1::JobSpec ForEvaluation(v1::JobSpec spec) {
  spec.clear_image_augmentation();
  return spec;
}

// Two daemons' or two runs' results for one hash are the same: the first stays.
absl::Status MoveIntoPlace(const std::string& part, const std::string& folder,
                           unsigned flags = RENAME_NOREPLACE) {
  if (FAILS_AT("prepare.rename")) return absl::ErrnoToStatus(ENOSPC, "a failed rename");
  const bool moved = renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), flags) == 0;
  FAILPOINT("prepare.renamed");
  if (moved) return absl::OkStatus();
  if (errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", part, " to ", folder));
  std::error_code ignored;
  std::filesystem::remove_all(part, ignored);
  return absl::OkStatus();
}

}  // namespace

int Preparer::Inputs::Open(const std::string& path, const Reach& reach) const {
  return (model.Holds(path) ? model : rows).OpenAgain(path, reach);
}

int Preparer::OpenAsItWas(const std::string& path, const Inputs& inputs, const Progress& progress) {
  const Content& was = inputs.contents.at(path);
  const int fd = inputs.Open(path, progress.reach);
  if (fd < 0 && errno == kIsAnother) errno = EAGAIN;  // A network's disk: it passes.
  if (fd < 0) return fd;
  const Progress silent = {.cancelled = progress.cancelled};
  const absl::StatusOr<Content> is = contents_.Of(fd, path, was, WatchOf(silent));
  if (is.ok() && is->sha256 == was.sha256) return fd;
  close(fd);
  errno = kIsAnother;
  return -1;
}

absl::StatusOr<std::string> Preparer::ContentHash(const std::string& path, Inputs& inputs,
                                                  const Progress& progress) {
  const int fd = inputs.Open(path, progress.reach);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const absl::Cleanup close_it = [fd] { close(fd); };
  Content& content = inputs.contents[path];
  ASSIGN_OR_RETURN(content, contents_.Of(fd, path, content, WatchOf(progress)));
  return content.sha256;
}

// Of all files that the rows depend on, and of their names.
absl::StatusOr<std::string> Preparer::SourceHash(Source& source, Inputs& inputs,
                                                 const Progress& progress) {
  const Reach& reach = progress.reach;
  RETURN_IF_ERROR(Told(source, FindPaths(source, reach), reach));
  const absl::StatusOr<std::vector<SourceFile>> files = FilesOf(source, reach);
  RETURN_IF_ERROR(Told(source, files.status(), reach));
  std::string key = OptionsKey(source);
  for (const SourceFile& file : *files) {
    const absl::StatusOr<std::string> hash = ContentHash(file.path, inputs, progress);
    RETURN_IF_ERROR(Told(source, hash.status(), reach));
    absl::StrAppend(&key, "|", file.name.size(), ":", file.name, "|", *hash);
  }
  return Sha256Hex(key);
}

absl::StatusOr<std::string> Preparer::FolderOf(std::vector<Source> sources, const v1::JobSpec& spec,
                                               bool split, Inputs& inputs,
                                               const Progress& progress) {
  std::string key;
  for (Source& source : sources) {
    ASSIGN_OR_RETURN(const std::string hash, SourceHash(source, inputs, progress));
    absl::StrAppend(&key, hash, "|");
  }
  for (const std::string& path : inputs.model.paths()) {
    ASSIGN_OR_RETURN(const std::string hash, ContentHash(path, inputs, progress));
    absl::StrAppend(&key, "|", std::filesystem::path(path).filename().string(), "|", hash);
  }
  for (const std::string& option : DataOptions(spec))
    absl::StrAppend(&key, "|", option.size(), ":", option);
  absl::StrAppend(&key, "|", spec.training().max_seq_length(), "|", kFormatVersion);
  if (split) absl::StrAppend(&key, "|", spec.eval_split(), "|", spec.training().seed());
  return absl::StrCat(settings_.datasets_dir, "/", Sha256Hex(key).substr(0, 32));
}

absl::StatusOr<PreparedFolders> Preparer::Locate(const v1::JobSpec& spec,
                                                 const std::string& model_dir,
                                                 const Progress& progress) {
  ASSIGN_OR_RETURN(HeldFiles model, HoldModel(spec, model_dir, progress.reach));
  Inputs inputs = {.model = std::move(model)};
  return LocateBy(spec, inputs, progress);
}

absl::StatusOr<PreparedFolders> Preparer::LocateBy(const v1::JobSpec& spec, Inputs& inputs,
                                                   const Progress& progress) {
  PreparedFolders folders;
  const bool split = spec.eval_split() > 0.0;
  const std::vector<Source> evaluation = EvalSources(spec);
  ASSIGN_OR_RETURN(folders.train, FolderOf(TrainSources(spec), spec, split, inputs, progress));
  if (split) folders.eval = folders.train + "-eval";
  if (!evaluation.empty()) {
    ASSIGN_OR_RETURN(folders.eval,
                     FolderOf(evaluation, ForEvaluation(spec), false, inputs, progress));
  }
  folders.prompts = PromptsFile(spec, folders.train);
  folders.ready = Ready(folders.train) && (folders.eval.empty() || Ready(folders.eval)) &&
                  (folders.prompts.empty() || Exists(folders.prompts));
  for (const std::string& folder : {folders.train, folders.eval})
    if (Ready(folder)) NoteUse(folder);
  return folders;
}

absl::StatusOr<PreparedFolders> Preparer::Prepare(const v1::JobSpec& spec,
                                                  const std::string& model_dir,
                                                  const Progress& progress) {
  ASSIGN_OR_RETURN(HeldFiles model, HoldModel(spec, model_dir, progress.reach));
  Inputs inputs = {
      .model = std::move(model),
      .rows = HeldFiles::Open(PathsOf({TrainSources(spec), EvalSources(spec)}, progress.reach),
                              progress.reach)};
  ASSIGN_OR_RETURN(PreparedFolders folders, LocateBy(spec, inputs, progress));
  if (folders.ready) return folders;
  const bool split = spec.eval_split() > 0.0;
  if (!Ready(folders.train) || (split && !Ready(folders.eval)))
    RETURN_IF_ERROR(RunPrepare({.sources = TrainSources(spec),
                                .output = folders.train,
                                .eval_split = spec.eval_split(),
                                .eval_output = split ? folders.eval : ""},
                               spec, model_dir, inputs, progress));
  if (!split && !folders.eval.empty() && !Ready(folders.eval))
    RETURN_IF_ERROR(RunPrepare({.sources = EvalSources(spec), .output = folders.eval},
                               ForEvaluation(spec), model_dir, inputs, progress));
  if (!folders.prompts.empty() && !Exists(folders.prompts))
    RETURN_IF_ERROR(RunPrompts(spec, model_dir, inputs.model, folders.prompts, progress));
  folders.ready = true;
  return folders;
}

absl::StatusOr<std::shared_ptr<const PreparedFacts>> Preparer::FactsOf(
    const PreparedFolders& folders) {
  ASSIGN_OR_RETURN(std::string key, IdentityOf(DatasetFile(folders.train)));
  for (const std::string& file : {DatasetFile(folders.eval), folders.prompts}) {
    absl::StrAppend(&key, "|");
    if (file.empty()) continue;
    ASSIGN_OR_RETURN(const std::string identity, IdentityOf(file));
    absl::StrAppend(&key, identity);
  }
  {
    absl::MutexLock lock(&mutex_);
    if (auto found = facts_.find(key); found != facts_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(PreparedFacts read, ReadFacts(folders));
  auto facts = std::make_shared<const PreparedFacts>(std::move(read));
  absl::MutexLock lock(&mutex_);
  if (facts_.size() >= kMaxRememberedFacts) facts_.clear();
  facts_[key] = facts;
  return facts;
}

absl::Status Preparer::RunPrepare(const Job& job, const v1::JobSpec& spec,
                                  const std::string& model_dir, Inputs& inputs,
                                  const Progress& progress) {
  const auto open = [&](const std::string& path) { return OpenAsItWas(path, inputs, progress); };
  ASSIGN_OR_RETURN(std::unique_ptr<FileServer> files, Serve(KeysOf(inputs.contents), open));
  ASSIGN_OR_RETURN(const std::unique_ptr<RunFolder> folder,
                   RunFolder::Make(settings_.datasets_dir));
  const std::string list = folder->PathOf("sources"), rows = folder->PathOf("rows"),
                    held_out = folder->PathOf("held-out");
  RunOptions run = PrepareCommand(settings_, {.script = settings_.script,
                                              .spec = spec,
                                              .model_dir = model_dir,
                                              .files = *files,
                                              .output = rows,
                                              .progress = progress});
  ASSIGN_OR_RETURN(const std::string field, ListSources(job.sources, list, progress.reach));
  const auto add = [&](const char* name, const auto& value) {
    run.argv.push_back(absl::StrCat(name, "=", value));
  };
  add("--sources", list);
  if (!job.eval_output.empty()) {
    add("--eval-split", job.eval_split);
    add("--eval-output", held_out);
    add("--seed", spec.training().seed());
  }
  run.on_stderr_line = [&](const std::string& line) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "progress: ") && progress.say)
      progress.say(absl::StrCat("its dataset is being prepared: ", ValidUtf8(text)));
    if (absl::ConsumePrefix(&text, "note: ")) spdlog::info("{}: {}", field, text);
  };
  const absl::Status ran = RunInShare(datasets_, run, field, progress);
  const int error = files->error();
  files.reset();
  if (error == kIsAnother) return InputChanged(job.sources);
  RETURN_IF_ERROR(Explained(ran, error));
  RETURN_IF_ERROR(CheckUnchanged(job, spec, inputs, progress));
  if (!job.eval_output.empty()) RETURN_IF_ERROR(MoveIntoPlace(held_out, job.eval_output));
  return MoveIntoPlace(rows, job.output);
}

// What was prepared is found by what was hashed before: it must still be that. Somebody whose
// rights end at his roots might have written another content for a while, and so may not touch a
// file; of others, who may well replace one meanwhile, what counts is what is in it.
absl::Status Preparer::CheckUnchanged(const Job& job, const v1::JobSpec& spec, Inputs& inputs,
                                      const Progress& progress) {
  const Contents before = inputs.contents;
  ASSIGN_OR_RETURN(const std::string now,
                   FolderOf(job.sources, spec, !job.eval_output.empty(), inputs, progress));
  const bool untouched = inputs.contents == before;
  if (now == job.output && (untouched || !progress.reach.roots)) return absl::OkStatus();
  return InputChanged(job.sources);
}

std::string Preparer::Missing() const { return MissingPart(settings_); }

absl::StatusOr<v1::PreviewDatasetResponse> Preparer::Preview(const v1::JobSpec& spec,
                                                             const Look& look,
                                                             const Progress& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RunFolder> folder,
                   RunFolder::Make(settings_.datasets_dir));
  const std::string output = folder->PathOf("preview"), list = folder->PathOf("sources");
  ASSIGN_OR_RETURN(const HeldFiles model, HoldModel(spec, look.model_dir, progress.reach));
  std::vector<std::string> paths = PathsOf({TrainSources(spec)}, progress.reach);
  for (const std::string& path : model.paths()) paths.push_back(path);
  const auto open = [&](const std::string& path) { return model.OpenAgain(path, progress.reach); };
  ASSIGN_OR_RETURN(const std::unique_ptr<FileServer> files, Serve(paths, open));
  RunOptions run = PrepareCommand(settings_, {.script = settings_.script,
                                              .spec = spec,
                                              .model_dir = look.model_dir,
                                              .files = *files,
                                              .output = output,
                                              .progress = progress});
  ASSIGN_OR_RETURN(const std::string field, ListSources(TrainSources(spec), list, progress.reach));
  run.argv.push_back("--sources=" + list);
  run.argv.push_back(absl::StrCat("--preview-rows=", look.rows));
  if (look.scanned_rows > 0) run.argv.push_back(absl::StrCat("--scan-rows=", look.scanned_rows));
  run.timeout = std::min(run.timeout, kPreviewTimeout);
  const absl::Status ran = RunInShare(looks_, run, field, progress, look.wait);
  RETURN_IF_ERROR(Explained(ran, files->error()));
  return ReadPreview(output);
}

// But for the prompts and how long they may be.
RunOptions Preparer::PromptsCommand(const v1::JobSpec& spec, const std::string& model_dir,
                                    const FileServer& files, const std::string& output,
                                    const Progress& progress) const {
  const std::string folder = std::filesystem::path(settings_.script).parent_path().string();
  RunOptions run = ScriptCommand(settings_, {.script = folder + "/snug_prompts.py",
                                             .spec = spec,
                                             .model_dir = model_dir,
                                             .files = files,
                                             .output = output,
                                             .progress = progress});
  for (const std::string& option : AddedTokenOptions(spec)) run.argv.push_back(option);
  return run;
}

absl::Status Preparer::Tokenise(const AskedPrompts& asked, const std::string& file,
                                const Progress& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RunFolder> folder,
                   RunFolder::Make(std::filesystem::path(file).parent_path().string()));
  const std::string texts = folder->PathOf("asked"), output = folder->PathOf("prompts");
  RETURN_IF_ERROR(WritePrompts(asked.prompts, texts));
  ASSIGN_OR_RETURN(const HeldFiles model, HoldModel(asked.spec, asked.model_dir, progress.reach));
  ASSIGN_OR_RETURN(const std::unique_ptr<FileServer> files, ServeModel(model));
  RunOptions run = PromptsCommand(asked.spec, asked.model_dir, *files, output, progress);
  for (const std::string& option :
       {"--prompts=" + texts, absl::StrCat("--max-tokens=", asked.max_tokens),
        "--chat-template=" + asked.chat_template, std::string("--field=prompts")})
    run.argv.push_back(option);
  run.timeout = std::min(run.timeout, kPreviewTimeout);
  const absl::Status ran = RunInShare(looks_, run, "prompts", progress, kWaitToLook);
  RETURN_IF_ERROR(Explained(ran, files->error()));
  return MoveIntoPlace(output, file, /*flags=*/0);
}

absl::Status Preparer::RunPrompts(const v1::JobSpec& spec, const std::string& model_dir,
                                  const HeldFiles& model, const std::string& file,
                                  const Progress& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RunFolder> folder,
                   RunFolder::Make(settings_.datasets_dir));
  const std::string texts = folder->PathOf("texts"), output = folder->PathOf("prompts");
  RETURN_IF_ERROR(WriteTexts(spec, texts));
  ASSIGN_OR_RETURN(const std::unique_ptr<FileServer> files, ServeModel(model));
  RunOptions run = PromptsCommand(spec, model_dir, *files, output, progress);
  const std::string field = spec.training().sample_prompts().empty()
                                ? "training.predict_with_generate"
                                : "training.sample_prompts";
  for (const std::string& option :
       {"--prompts=" + texts, "--field=" + field,
        absl::StrCat("--max-tokens=", MaxPromptTokens(spec)),
        "--chat-template=" + spec.chat_template(), std::string("--texts-are-said")})
    run.argv.push_back(option);
  RETURN_IF_ERROR(Explained(RunInShare(datasets_, run, field, progress), files->error()));
  return MoveIntoPlace(output, file, /*flags=*/0);
}

absl::Status Preparer::RunInShare(MemoryShares& shares, RunOptions run, const std::string& field,
                                  const Progress& progress, absl::Duration wait) {
  RETURN_IF_ERROR(shares.Take(progress.cancelled, std::min(progress.until, SinceBoot() + wait)));
  const absl::Cleanup give_back = [&shares] { shares.GiveBack(); };
  run.timeout = std::min(run.timeout, progress.until - SinceBoot());
  return RunScript(run, field);
}

void Preparer::RemoveLeftovers() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(settings_.datasets_dir, ignored))
    if (absl::StrContains(entry.path().filename().string(), kPartMark))
      std::filesystem::remove_all(entry.path(), ignored);
}

}  // namespace snug::server
