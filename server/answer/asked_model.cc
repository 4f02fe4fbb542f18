#include "server/answer/asked_model.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/job_origins.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/node/attempt_files.h"
#include "worker/program/generation.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxTemplateBytes = 1 << 20;

void CheckSettings(const v1::SampleSettings& settings, std::vector<Violation>& found) {
  const auto outside = [&](const char* field, const auto& value, const auto& most) {
    found.push_back({absl::StrCat("settings.", field),
                     absl::StrCat(value, " is outside 0 to ", most), "BAD_FIELD"});
  };
  const int tokens = settings.max_new_tokens();
  if (tokens < 0 || tokens > kMaxAnswerTokens) outside("max_new_tokens", tokens, kMaxAnswerTokens);
  const double temperature = settings.temperature(), top_p = settings.top_p();
  if (!(temperature >= 0.0 && temperature <= kMaxTemperature))
    outside("temperature", temperature, kMaxTemperature);
  if (!(top_p >= 0.0 && top_p <= 1.0)) outside("top_p", top_p, 1);
}

void CheckPrompts(const v1::SampleRequest& request, std::vector<Violation>& found) {
  if (request.prompts().empty() || request.prompts_size() > kMaxPrompts)
    found.push_back({"prompts",
                     absl::StrCat("there are ", request.prompts_size(), ", not 1 to ", kMaxPrompts),
                     "BAD_FIELD"});
  for (int i = 0; i < request.prompts_size() && i < kMaxPrompts; ++i) {
    const v1::SamplePrompt& prompt = request.prompts(i);
    if (prompt.text().empty() == prompt.messages().empty())
      found.push_back(
          {absl::StrCat("prompts[", i, "]"), "must be text or messages, one of them", "BAD_FIELD"});
  }
}

// The rows were rendered by it, whatever the model has by now.
absl::StatusOr<std::string> TemplateIn(const std::string& output) {
  const absl::StatusOr<std::string> text =
      ReadSmallFile(output + "/chat_template.jinja", kMaxTemplateBytes);
  return absl::IsNotFound(text.status()) ? std::string() : text;
}

absl::StatusOr<int64_t> RoomForPrompts(const program::Program& program, int64_t new_tokens) {
  if (program.config.has_source()) return program.config.max_positions;
  const int64_t room = program.config.max_positions - new_tokens;
  if (room > 0) return room;
  return InvalidRequest(
      {{"settings.max_new_tokens",
        absl::StrCat(new_tokens, ": the model is made for ", program.config.max_positions,
                     " tokens, a prompt's among them"),
        "BAD_FIELD"}});
}

}  // namespace

absl::Status CheckSampleRequest(const v1::SampleRequest& request) {
  std::vector<Violation> found;
  CheckPrompts(request, found);
  CheckSettings(request.settings(), found);
  if (request.base() && request.has_checkpoint_step())
    found.push_back({"base", "a checkpoint is none of the model before training", "BAD_FIELD"});
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

v1::SampleSettings SettingsOf(const v1::SampleRequest& request, int64_t max_positions) {
  v1::SampleSettings settings = request.settings();
  if (settings.max_new_tokens() == 0)
    settings.set_max_new_tokens(
        static_cast<int>(std::clamp<int64_t>(max_positions / 2, 1, kDefaultAnswerTokens)));
  if (settings.top_p() == 0.0) settings.set_top_p(1.0);
  return settings;
}

absl::StatusOr<AskedModel> FindModel(const v1::SampleRequest& request, const JobIndex& index,
                                     Inspector& inspector, const std::string& state_dir) {
  ASSIGN_OR_RETURN(const JobPtr job, index.Find(request.id()));
  AskedModel asked;
  v1::JobSpec spec = job->spec();
  asked.chat_template = spec.chat_template();
  if (request.base()) {
    spec.clear_added_tokens();  // It was not trained with them.
  } else if (request.has_checkpoint_step()) {
    ASSIGN_OR_RETURN(asked.checkpoint, FolderAt(job->id(), CheckpointsDir(state_dir, KeyOf(*job)),
                                                request.checkpoint_step()));
  } else {
    ASSIGN_OR_RETURN(const std::string output, index.OutputOf(KeyOf(*job)));
    if (asked.chat_template.empty()) {
      ASSIGN_OR_RETURN(asked.chat_template, TemplateIn(output));
    }
    if (spec.method() ==
        v1::JobSpec::METHOD_FULL) {  // Its tokenizer and its rows have grown already.
      spec.set_model(job->id());
      spec.clear_added_tokens();
    } else {
      asked.adapter = output;
    }
  }
  asked.owner = OwnerOf(*job);
  ASSIGN_OR_RETURN(asked.checked,
                   inspector.Check(spec, JobOrigins(index, state_dir, asked.owner),
                                   {.who = asked.owner, .inputs = InputFiles::kDone}));
  if (asked.checkpoint.empty()) asked.checkpoint = asked.checked.start_from;
  const program::ModelConfig& config = asked.checked.program->config;
  if (config.classifies())
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "the model of job \"", job->id(), "\" classifies: it writes no text")),
                      "NO_TEXT_MODEL");
  if (config.task == program::Task::kMaskedLm)
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("the model of job \"", job->id(),
                                       "\" is of task: masked_lm, which answers no prompts")),
                      "NO_TEXT_MODEL");
  asked.settings = SettingsOf(request, config.max_positions);
  asked.checked.program =
      std::make_shared<const program::Program>(program::Frozen(*asked.checked.program));
  ASSIGN_OR_RETURN(asked.max_prompt_tokens,
                   RoomForPrompts(*asked.checked.program, asked.settings.max_new_tokens()));
  return asked;
}

}  // namespace snug::server
