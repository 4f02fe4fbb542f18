#include "server/data/prepare_command.h"

#include <csignal>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/job/errors.h"
#include "worker/program/augmentation.h"
#include "worker/program/json.h"

namespace snug::server {
namespace {

constexpr int kExitBadInput = 2;
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
  if (spec.task() == v1::JobSpec::SEQUENCE_CLASSIFICATION) add("--task", "sequence_classification");
  if (spec.task() == v1::JobSpec::TOKEN_CLASSIFICATION) add("--task", "token_classification");
  if (spec.task() == v1::JobSpec::SEQ2SEQ_LM) add("--task", "seq2seq_lm");
  if (spec.task() == v1::JobSpec::MASKED_LM) add("--task", "masked_lm");
  if (spec.task() == v1::JobSpec::IMAGE_CLASSIFICATION) add("--task", "image_classification");
  if (!spec.problem_type().empty()) add("--problem-type", spec.problem_type());
  if (spec.num_labels() > 0) add("--num-labels", absl::StrCat(spec.num_labels()));
  const auto augmentation = program::AugmentationOfName(spec.image_augmentation());
  if (augmentation.value_or(program::Augmentation::kNone) != program::Augmentation::kNone)
    add("--originals", "1");
  for (const std::string& name : spec.label_names()) add("--label-name", name);
  for (const std::string& option : AddedTokenOptions(spec)) options.push_back(option);
  return options;
}

RunOptions PrepareCommand(const PrepareSettings& settings, const v1::JobSpec& spec,
                          const std::string& model_dir) {
  RunOptions run;
  run.argv = {settings.python,
              "-B",
              settings.script,
              "--model=" + model_dir,
              absl::StrCat("--max-seq-length=", spec.training().max_seq_length()),
              absl::StrCat("--memory-bytes=", settings.memory_bytes),
              absl::StrCat("--cpu-seconds=", absl::ToInt64Seconds(settings.timeout))};
  const std::vector<std::string> options = DataOptions(spec);
  run.argv.insert(run.argv.end(), options.begin(), options.end());
  run.timeout = settings.timeout;
  return run;
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
  const bool of_rows = text("field").empty() || text("field") == "dataset";
  const std::string field = of_rows ? field_of_rows : text("field");
  const std::string reason = text("reason").empty() ? "BAD_DATASET" : text("reason");
  return InvalidRequest({{absl::StrCat("spec.", field), message, reason}});
}

}  // namespace snug::server
