#include "server/job/check_spec.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "server/job/check_lora.h"
#include "server/job/check_training.h"
#include "server/job/random_id.h"
#include "server/job/spec_checker.h"
#include "worker/program/json.h"

namespace snug::server {
namespace {

using v1::JobSpec;

void CheckModel(const JobSpec& spec, Checker& check) {
  if (spec.model().empty())
    check.Add("model", "is missing: a Hugging Face model directory, or the id of a finished job");
  else if (!IsJobId(spec.model()))
    check.Path("model", spec.model());
}

void CheckNames(const JobSpec& spec, Checker& check) {
  if (static_cast<int64_t>(spec.display_name().size()) > kMaxDisplayNameBytes)
    check.Add("display_name", absl::StrCat("at most ", kMaxDisplayNameBytes, " bytes"));
  for (unsigned char c : spec.display_name()) {
    if (!absl::ascii_iscntrl(c)) continue;
    check.Add("display_name", "cannot hold control characters");
    break;
  }
  CheckModel(spec, check);
  if (spec.method() != JobSpec::LORA && spec.method() != JobSpec::FULL)
    check.Add("method", "is missing: lora or full");
  check.Integer("priority", spec.priority(), -kMaxPriority, kMaxPriority);
}

// What the tokenizer makes of them, and whether it has one already, is seen when it is read.
void CheckAddedTokens(const JobSpec& spec, Checker& check) {
  if (spec.added_tokens_size() > kMaxAddedTokens)
    return check.Add("added_tokens",
                     absl::StrCat(spec.added_tokens_size(), " tokens; at most ", kMaxAddedTokens));
  std::set<absl::string_view> seen;
  for (const std::string& token : spec.added_tokens()) {
    if (token.empty()) return check.Add("added_tokens", "holds an empty token");
    if (static_cast<int64_t>(token.size()) > kMaxAddedTokenBytes)
      return check.Add("added_tokens", absl::StrCat("a token of ", token.size(), " bytes; at most ",
                                                    kMaxAddedTokenBytes));
    if (absl::StrContains(token, '\0'))
      return check.Add("added_tokens", "a token cannot hold a zero byte");
    if (!seen.insert(token).second)
      return check.Add("added_tokens", absl::StrCat(program::Quote(token), " is there twice"));
  }
}

void CheckWhatIsTrained(const JobSpec& spec, Checker& check) {
  if (!spec.mask_history()) return;
  const auto off = [](bool given, bool value) { return given && !value; };
  const auto refuse = [&](absl::string_view other) {
    check.Add("mask_history", absl::StrCat("trains the last answer alone, but ", other,
                                           ": false trains more: give one of them"));
  };
  if (off(spec.has_assistant_only_loss(), spec.assistant_only_loss()))
    refuse("assistant_only_loss");
  if (off(spec.has_completion_only_loss(), spec.completion_only_loss()))
    refuse("completion_only_loss");
}

void CheckData(const JobSpec& spec, Checker& check) {
  if (spec.dataset().empty())
    check.Add("dataset", "is missing: a file of rows to train on");
  else
    check.Path("dataset", spec.dataset());
  if (!spec.eval_dataset().empty()) check.Path("eval_dataset", spec.eval_dataset());
  if (!JobSpec::DatasetFormat_IsValid(spec.dataset_format()))
    check.Add("dataset_format", "is none of those that there are");
  const std::string& chat_template = spec.chat_template();
  if (static_cast<int64_t>(chat_template.size()) > kMaxChatTemplateBytes)
    check.Add("chat_template", absl::StrCat("a text of ", chat_template.size(), " bytes; at most ",
                                            kMaxChatTemplateBytes));
  else if (absl::StrContains(chat_template, '\0'))
    check.Add("chat_template", "cannot hold a zero byte");
  CheckAddedTokens(spec, check);
  CheckWhatIsTrained(spec, check);
  if (spec.eval_split() == 0.0) return;
  if (!(spec.eval_split() > 0.0 && spec.eval_split() < 1.0))
    check.Add("eval_split", absl::StrCat(spec.eval_split(), " is outside (0, 1)"));
  if (!spec.eval_dataset().empty())
    check.Add("eval_split", "give eval_dataset or eval_split, not both");
}

bool IsQuantized(const JobSpec& spec) {
  return spec.quantization() == JobSpec::INT8 || spec.quantization() == JobSpec::NF4;
}

void CheckQuantization(const JobSpec& spec, Checker& check) {
  if (!JobSpec::Quantization_IsValid(spec.quantization()))
    check.Add("quantization", "none, int8 or nf4");
  if (!IsQuantized(spec)) return;
  if (spec.method() == JobSpec::FULL)
    check.Add("quantization",
              "is for a base that stays as it is, beside an adapter (method lora); a full job "
              "changes every weight: none");
  if (spec.merge())
    check.Add("merge",
              "the adapter is trained beside quantised weights, and would be merged into others: "
              "leave it out and take the adapter, or give quantization: none");
}

void CheckMethod(const JobSpec& spec, Checker& check) {
  CheckQuantization(spec, check);
  const v1::LoraSpec& lora = spec.lora();
  if (spec.method() == JobSpec::FULL) {
    // An empty message asks for nothing, so it may stand there.
    if (lora.ByteSizeLong() > 0) check.Add("lora", "is for method lora; this job's method is full");
    if (spec.merge()) check.Add("merge", "is for method lora; a full job gives a model anyway");
    return;
  }
  CheckLora(lora, check);
}

void CheckMemory(const JobSpec& spec, Checker& check) {
  const v1::MemorySpec& memory = spec.memory();
  if (!memory.budget().empty() && memory.budget() != "auto") {
    absl::StatusOr<int64_t> bytes = ParseBytes(memory.budget());
    if (!bytes.ok()) check.Add("memory.budget", std::string(bytes.status().message()));
    if (bytes.ok() && *bytes < 1) check.Add("memory.budget", "must be above 0");
  }
  if (!v1::Fidelity_IsValid(memory.fidelity()))
    check.Add("memory.fidelity", "exact, unbiased or approximate");
  if (static_cast<int64_t>(memory.stash().size()) > kMaxStashPatterns)
    check.Add("memory.stash",
              absl::StrCat(memory.stash().size(), " patterns are more than ", kMaxStashPatterns));
  for (const auto& [pattern, kind] : memory.stash()) {
    if (static_cast<int64_t>(pattern.size()) > kMaxStashPatternBytes)
      check.Add("memory.stash",
                absl::StrCat("a pattern has at most ", kMaxStashPatternBytes, " bytes"));
    if (kind != v1::KEEP && kind != v1::RECOMPUTE)
      check.Add(absl::StrCat("memory.stash[\"", pattern, "\"]"), "keep or recompute");
  }
}

void FillLora(v1::LoraSpec& lora) {
  if (!lora.has_r()) lora.set_r(16);
  if (!lora.has_lora_alpha()) lora.set_lora_alpha(32.0);
  if (!lora.has_use_rslora()) lora.set_use_rslora(false);
  if (lora.target_modules().empty()) lora.add_target_modules("all-linear");
}

}  // namespace

std::vector<Violation> CheckSpec(const JobSpec& spec) {
  Checker check;
  CheckNames(spec, check);
  CheckData(spec, check);
  CheckMethod(spec, check);
  CheckTraining(spec, check);
  CheckMemory(spec, check);
  return check.Take();
}

std::vector<Violation> CheckDatasetSpec(const JobSpec& spec) {
  Checker check;
  CheckModel(spec, check);
  CheckData(spec, check);
  if (spec.training().has_max_seq_length())
    check.Integer("training.max_seq_length", spec.training().max_seq_length(), 2,
                  kMaxSequenceTokens);
  return check.Take();
}

void FillDefaults(JobSpec& spec, int64_t model_limit_tokens) {
  const bool lora = spec.method() == JobSpec::LORA;
  if (lora) FillLora(*spec.mutable_lora());
  if (!lora) spec.clear_lora();
  FillTraining(*spec.mutable_training(), lora, model_limit_tokens);
  if (spec.quantization() == JobSpec::QUANTIZATION_UNSPECIFIED)
    spec.set_quantization(JobSpec::NONE);
  if (spec.memory().budget().empty()) spec.mutable_memory()->set_budget("auto");
  if (spec.memory().fidelity() == v1::FIDELITY_UNSPECIFIED)
    spec.mutable_memory()->set_fidelity(v1::EXACT);
}

}  // namespace snug::server
