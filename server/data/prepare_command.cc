#include "server/data/prepare_command.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "proto/snug/utf8.h"
#include "server/job/errors.h"
#include "server/job/random_id.h"
#include "worker/program/augmentation.h"
#include "worker/program/files/json.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr int kExitBadInput = 2;
constexpr int kFirstPassed = 3;  // As Run passes descriptors.
constexpr program::JsonLimits kErrorLimits = {.bytes = kMaxCaptureBytes, .values = 100, .depth = 4};

// Python's last line of a system call's error: "OSError: [Errno 28] No space left on device".
absl::StatusCode CodeOf(absl::string_view message) {
  constexpr absl::string_view kMark = "[Errno ";
  const size_t at = message.find(kMark);
  if (at == absl::string_view::npos) return absl::StatusCode::kInternal;
  const absl::string_view rest = message.substr(at + kMark.size());
  int number = 0;
  if (!absl::SimpleAtoi(rest.substr(0, rest.find(']')), &number) || number <= 0)
    return absl::StatusCode::kInternal;
  return absl::ErrnoToStatusCode(number);
}

// No fault of the user's: the disk, the machine, or a mistake in snug-prepare.
absl::Status PrepareFailed(const RunResult& result, absl::string_view message) {
  const std::string ending = result.signal ? absl::StrCat("signal ", result.signal)
                                           : absl::StrCat("exit code ", result.exit_code);
  return WithReason(absl::Status(CodeOf(message),
                                 absl::StrCat("snug-prepare ended with ", ending, ": ", message)),
                    "PREPARE_FAILED");
}

// The tokenizer is Rust, which ends the process where memory runs out and says so in one line.
bool RanOutOfMemory(const RunResult& result) {
  return result.signal == SIGABRT && absl::StrContains(result.err, "memory allocation of");
}

// A path, or a name that the PATH of this process has.
bool IsProgram(const std::string& program) {
  if (absl::StrContains(program, '/')) return access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':'))
    if (access(absl::StrCat(folder, "/", program).c_str(), X_OK) == 0) return true;
  return false;
}

// Where a Python, its libraries and packages are read from. What is not there does no harm.
std::vector<std::string> PlacesOfPython(const PrepareSettings& settings) {
  std::vector<std::string> places = {
      "/usr",  "/lib", "/lib64",           "/bin",          "/nix/store", "/dev",
      "/proc", "/sys", "/etc/ld.so.cache", "/etc/localtime"};
  places.push_back(fs::path(settings.script).parent_path().string());
  std::error_code error;
  const fs::path real = fs::canonical(settings.python, error);
  for (const fs::path& python : {fs::path(settings.python), real}) {
    const fs::path prefix = python.parent_path().parent_path();
    if (!prefix.empty() && prefix != "/") places.push_back(prefix.string());
  }
  // Packages that the daemon's own user has installed for himself.
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    places.push_back(absl::StrCat(home, "/.local/lib"));
  for (const char* variable : {"PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH"}) {
    const char* value = std::getenv(variable);
    for (absl::string_view path : absl::StrSplit(value == nullptr ? "" : value, ':'))
      if (!path.empty()) places.emplace_back(path);
  }
  return places;
}

}  // namespace

std::vector<std::string> AddedTokenOptions(const v1::JobSpec& spec) {
  std::vector<std::string> options;
  for (const std::string& token : spec.added_tokens()) options.push_back("--added-token=" + token);
  return options;
}

std::vector<std::string> DataOptions(const v1::JobSpec& spec) {
  std::vector<std::string> options;
  // One argument each: a template may begin with a dash.
  const auto add = [&](const char* name, const std::string& value) {
    options.push_back(absl::StrCat(name, "=", value));
  };
  if (!spec.chat_template().empty()) add("--chat-template", spec.chat_template());
  const auto off = [](bool given, bool value) { return given && !value; };
  if (off(spec.has_completion_only_loss(), spec.completion_only_loss()))
    add("--completion-only-loss", "0");
  if (off(spec.has_assistant_only_loss(), spec.assistant_only_loss()))
    add("--assistant-only-loss", "0");
  if (spec.mask_history()) add("--mask-history", "1");
  if (spec.task() == v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION)
    add("--task", "sequence_classification");
  if (spec.task() == v1::JobSpec::TASK_TOKEN_CLASSIFICATION) add("--task", "token_classification");
  if (spec.task() == v1::JobSpec::TASK_SEQ2SEQ_LM) add("--task", "seq2seq_lm");
  if (spec.task() == v1::JobSpec::TASK_MASKED_LM) add("--task", "masked_lm");
  if (spec.task() == v1::JobSpec::TASK_IMAGE_CLASSIFICATION) add("--task", "image_classification");
  if (!spec.problem_type().empty()) add("--problem-type", spec.problem_type());
  if (spec.num_labels() > 0) add("--num-labels", absl::StrCat(spec.num_labels()));
  const auto augmentation = program::AugmentationOfName(spec.image_augmentation());
  if (augmentation.value_or(program::Augmentation::kNone) != program::Augmentation::kNone)
    add("--originals", "1");
  for (const std::string& name : spec.label_names()) add("--label-name", name);
  for (const std::string& option : AddedTokenOptions(spec)) options.push_back(option);
  return options;
}

RunOptions ScriptCommand(const PrepareSettings& settings, const ScriptRun& run) {
  const std::string folder = fs::path(run.output).parent_path().string();
  RunOptions command;
  command.argv = {settings.confine, "--write", folder, "--write", "/dev/null"};
  const auto read = [&](const std::string& path) {
    command.argv.insert(command.argv.end(), {"--read", path});
  };
  if (run.progress.reach.roots) {
    for (const std::string& path : PlacesOfPython(settings)) read(path);
  } else {
    read("/");  // The daemon's own user may have put his Python together from anywhere.
  }
  command.passed_fds = {run.files.socket(), run.files.list()};
  command.argv.insert(
      command.argv.end(),
      {settings.python, "-B", run.script, "--model=" + run.model_dir,
       absl::StrCat("--file-server=", kFirstPassed), absl::StrCat("--file-list=", kFirstPassed + 1),
       "--output=" + run.output, absl::StrCat("--memory-bytes=", settings.memory_bytes),
       absl::StrCat("--cpu-seconds=", absl::ToInt64Seconds(settings.timeout))});
  command.environment = {"TMPDIR=" + folder};
  command.timeout = settings.timeout;
  command.cancelled = run.progress.cancelled;
  return command;
}

RunOptions PrepareCommand(const PrepareSettings& settings, const ScriptRun& run) {
  RunOptions command = ScriptCommand(settings, run);
  command.argv.push_back(absl::StrCat("--max-seq-length=", run.spec.training().max_seq_length()));
  for (const std::string& option : DataOptions(run.spec)) command.argv.push_back(option);
  return command;
}

std::string MissingPart(const PrepareSettings& settings) {
  if (access(settings.script.c_str(), R_OK) != 0)
    return absl::StrCat("the script of snug-prepare, ", settings.script,
                        ", cannot be read: ", std::strerror(errno),
                        "; the environment's SNUG_PREPARE names another one");
  if (!IsProgram(settings.python))
    return absl::StrCat("the Python of snug-prepare, ", settings.python,
                        ", cannot be started; the setting python names another one");
  return "";
}

absl::Status RunScript(const RunOptions& command, const std::string& field) {
  const absl::StatusOr<RunResult> result = Run(command);
  if (absl::IsDeadlineExceeded(result.status()))
    return InvalidRequest(
        {{"spec." + field,
          absl::StrCat("preparing it takes more than ", absl::FormatDuration(command.timeout),
                       ": does its chat template come to an end? Else raise "
                       "prepare.timeout_seconds"),
          "PREPARE_LIMIT"}});
  RETURN_IF_ERROR(result.status());
  return result->exit_code == 0 ? absl::OkStatus() : PrepareError(*result, field);
}

// The last line of stderr is a JSON object: {"reason", "message", "field", "file", "line"}.
absl::Status PrepareError(const RunResult& result, const std::string& field_of_rows) {
  if (RanOutOfMemory(result))
    return InvalidRequest({{"spec." + field_of_rows,
                            "preparing it needs more memory than prepare.memory allows: shorten "
                            "its longest rows, or raise the limit",
                            "PREPARE_LIMIT"}});
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(result.err), '\n');
  const nlohmann::json said =
      program::ParseJson(lines.back(), "snug-prepare", kErrorLimits).value_or(nullptr);
  if (!said.is_object()) return PrepareFailed(result, ValidUtf8(lines.back()));
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
  const bool of_rows = text("field").empty() || text("field") == "dataset";
  const std::string field = of_rows ? field_of_rows : text("field");
  const std::string reason = text("reason").empty() ? "BAD_DATASET" : text("reason");
  return InvalidRequest({{absl::StrCat("spec.", field), message, reason}});
}

}  // namespace snug::server
