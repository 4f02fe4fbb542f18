#include "worker/program/task.h"

#include "absl/strings/str_cat.h"
#include "worker/program/model_config.h"

namespace snug::program {
namespace {

absl::Status ChooseCausalLm(const TaskChoice& choice, const ModelConfig& config) {
  if (config.task != Task::kCausalLm) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: config.json names ", ArchitectureOf(config),
                     ", which has no head for causal_lm; give task: ", NameOf(config.task)));
  }
  if (choice.labels == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "num_labels: is of task: sequence_classification; this job's is causal_lm");
}

// The base of a language model without its head.
void AddNewHead(ModelConfig& config) {
  config.task = Task::kSequenceClassification;
  config.labels = kDefaultLabels;
  config.new_head = true;
  config.tied_embeddings = false;
  config.logit_softcap = 0.0;
}

}  // namespace

absl::Status ChooseTask(const TaskChoice& choice, ModelConfig& config) {
  if (config.encoder && config.new_head && !choice.task) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: config.json names no head that ", config.model_type,
                     " is trained with; give task: sequence_classification"));
  }
  const Task task = choice.task.value_or(config.task);
  if (task == Task::kCausalLm) return ChooseCausalLm(choice, config);
  if (config.task == Task::kCausalLm) AddNewHead(config);
  if (choice.labels == 0 || choice.labels == config.labels) return absl::OkStatus();
  if (!config.new_head) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_labels: ", choice.labels, ", but the model's head has ", config.labels,
                     " (config.json): leave it out, or start from a model without that head"));
  }
  if (choice.labels < 2 || choice.labels > kMaxLabels) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_labels: ", choice.labels, " is outside [2, ", kMaxLabels, "]"));
  }
  config.labels = choice.labels;
  return absl::OkStatus();
}

const char* NameOf(Task task) {
  return task == Task::kCausalLm ? "causal_lm" : "sequence_classification";
}

const char* PeftTaskType(Task task) { return task == Task::kCausalLm ? "CAUSAL_LM" : "SEQ_CLS"; }

}  // namespace snug::program
