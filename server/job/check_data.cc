#include "server/job/check_data.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/job/check_spec.h"
#include "worker/program/augmentation.h"
#include "worker/program/files/json.h"
#include "worker/program/task.h"

namespace snug::server {
namespace {

constexpr char kTasks[] =
    "causal_lm, seq2seq_lm, masked_lm, sequence_classification, token_classification or "
    "image_classification";

// What the tokenizer makes of them, and whether it has one already, is seen when it is read.
void CheckAddedTokens(const v1::JobSpec& spec, Checker& check) {
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

void CheckLabels(const v1::JobSpec& spec, Checker& check) {
  const bool named = !spec.label_names().empty();
  if (!v1::JobSpec::Task_IsValid(spec.task())) check.Add("task", kTasks);
  const bool of_text = spec.task() == v1::JobSpec::TASK_CAUSAL_LM ||
                       spec.task() == v1::JobSpec::TASK_SEQ2SEQ_LM ||
                       spec.task() == v1::JobSpec::TASK_MASKED_LM;
  const double masked = spec.mlm_probability();
  if (spec.has_mlm_probability() && !(masked > 0.0 && masked < 1.0))
    check.Add("mlm_probability", absl::StrCat(masked, " is outside (0, 1)"));
  const std::string& augmentation = spec.image_augmentation();
  if (!augmentation.empty() && !program::AugmentationOfName(augmentation))
    check.Add("image_augmentation", absl::StrCat("one of ", program::kAugmentationNames, ", not ",
                                                 program::Quote(augmentation)));
  if (of_text && (named || spec.num_labels() != 0))
    check.Add(named ? "label_names" : "num_labels",
              "is of task: sequence_classification, token_classification or "
              "image_classification");
  check.Integer("num_labels", spec.num_labels(), 0, program::kMaxLabels);
  const std::string& named_problem = spec.problem_type();
  const auto problem = program::ProblemOfName(named_problem);
  if (!named_problem.empty() && !problem)
    check.Add("problem_type", absl::StrCat("one of ", program::kProblemNames, ", not ",
                                           program::Quote(named_problem)));
  const bool one_class = problem == program::Problem::kSingleLabel ||
                         spec.task() == v1::JobSpec::TASK_TOKEN_CLASSIFICATION ||
                         spec.task() == v1::JobSpec::TASK_IMAGE_CLASSIFICATION;
  if (spec.num_labels() == 1 && one_class)
    check.Add("num_labels",
              "1, but a classification by one label chooses among at least 2 classes");
  if (spec.label_names_size() > kMaxLabelNames)
    return check.Add("label_names",
                     absl::StrCat(spec.label_names_size(), " names; at most ", kMaxLabelNames));
  if (named && spec.num_labels() != 0 && spec.num_labels() != spec.label_names_size())
    check.Add("label_names", absl::StrCat(spec.label_names_size(), " names, but num_labels is ",
                                          spec.num_labels()));
  if (spec.label_names_size() == 1 && (one_class || !problem))
    check.Add("label_names", "one class: at least 2");
  std::set<absl::string_view> seen;
  for (const std::string& name : spec.label_names()) {
    if (name.empty() || static_cast<int64_t>(name.size()) > kMaxLabelNameBytes ||
        absl::StrContains(name, '\0'))
      return check.Add("label_names", absl::StrCat("a name has 1 to ", kMaxLabelNameBytes,
                                                   " bytes, none of them zero"));
    if (!seen.insert(name).second)
      return check.Add("label_names", absl::StrCat(program::Quote(name), " is there twice"));
  }
}

void CheckWhatIsTrained(const v1::JobSpec& spec, Checker& check) {
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

void CheckColumns(const std::string& field,
                  const google::protobuf::Map<std::string, std::string>& columns, Checker& check) {
  if (static_cast<int64_t>(columns.size()) > kMaxColumns)
    check.Add(field, absl::StrCat(columns.size(), " columns; at most ", kMaxColumns));
  for (const auto& [ours, theirs] : columns) {
    if (ours.empty() || theirs.empty()) check.Add(field, "a column's name is empty");
    if (static_cast<int64_t>(theirs.size()) > kMaxColumnBytes)
      check.Add(field,
                absl::StrCat("a name of ", theirs.size(), " bytes; at most ", kMaxColumnBytes));
  }
}

void CheckFormat(const std::string& field, v1::JobSpec::DatasetFormat format, Checker& check) {
  if (!v1::JobSpec::DatasetFormat_IsValid(format))
    check.Add(field, "is none of those that there are");
}

void CheckSplitName(const std::string& field, const std::string& name, Checker& check) {
  if (static_cast<int64_t>(name.size()) > kMaxColumnBytes)
    check.Add(field, absl::StrCat("a name of ", name.size(), " bytes; at most ", kMaxColumnBytes));
}

// What belongs to the one dataset stands beside each of several.
void CheckSeveral(const v1::JobSpec& spec, Checker& check) {
  if (spec.datasets_size() > kMaxDatasets)
    return check.Add("datasets",
                     absl::StrCat(spec.datasets_size(), " datasets; at most ", kMaxDatasets));
  const auto alone = [&](bool given, const char* field) {
    if (given) check.Add(field, "is of one dataset; beside datasets it stands in each of them");
  };
  alone(!spec.dataset().empty(), "dataset");
  alone(!spec.dataset_split().empty(), "dataset_split");
  alone(spec.max_samples() != 0, "max_samples");
  if (!spec.eval_dataset_split().empty() && spec.eval_dataset().empty())
    check.Add("eval_dataset_split", "of which dataset? Give eval_dataset");
  for (int i = 0; i < spec.datasets_size(); ++i) {
    const v1::DatasetSource& source = spec.datasets(i);
    const std::string at = absl::StrCat("datasets[", i, "].");
    check.Path((at + "path").c_str(), source.path());
    CheckSplitName(at + "split", source.split(), check);
    CheckSplitName(at + "config", source.config(), check);
    CheckColumns(at + "columns", source.columns(), check);
    CheckFormat(at + "dataset_format", source.dataset_format(), check);
    if (source.has_weight()) check.Positive((at + "weight").c_str(), source.weight(), kMaxWeight);
    check.Integer((at + "max_samples").c_str(), source.max_samples(), 0, kMaxSamples);
  }
}

void CheckPlaces(const v1::JobSpec& spec, Checker& check) {
  if (!spec.datasets().empty())
    CheckSeveral(spec, check);
  else if (spec.dataset().empty())
    check.Add("dataset", "is missing: a file or a folder of rows to train on");
  else
    check.Path("dataset", spec.dataset());
  if (!spec.eval_dataset().empty()) check.Path("eval_dataset", spec.eval_dataset());
  CheckSplitName("dataset_split", spec.dataset_split(), check);
  CheckSplitName("dataset_config", spec.dataset_config(), check);
  CheckSplitName("eval_dataset_split", spec.eval_dataset_split(), check);
  CheckColumns("columns", spec.columns(), check);
  check.Integer("max_samples", spec.max_samples(), 0, kMaxSamples);
  CheckFormat("dataset_format", spec.dataset_format(), check);
}

}  // namespace

void CheckData(const v1::JobSpec& spec, Checker& check) {
  CheckPlaces(spec, check);
  const std::string& chat_template = spec.chat_template();
  if (static_cast<int64_t>(chat_template.size()) > kMaxChatTemplateBytes)
    check.Add("chat_template", absl::StrCat("a text of ", chat_template.size(), " bytes; at most ",
                                            kMaxChatTemplateBytes));
  else if (absl::StrContains(chat_template, '\0'))
    check.Add("chat_template", "cannot hold a zero byte");
  CheckAddedTokens(spec, check);
  CheckLabels(spec, check);
  CheckWhatIsTrained(spec, check);
  if (spec.eval_split() == 0.0) return;
  if (!(spec.eval_split() > 0.0 && spec.eval_split() < 1.0))
    check.Add("eval_split", absl::StrCat(spec.eval_split(), " is outside (0, 1)"));
  if (!spec.eval_dataset().empty() || !spec.eval_dataset_split().empty())
    check.Add("eval_split", "give eval_dataset or eval_split, not both");
}

}  // namespace snug::server
