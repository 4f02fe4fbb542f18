#include "worker/program/task.h"

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/encoder_decoder.h"
#include "worker/program/model_config.h"

namespace snug::program {
namespace {

absl::Status CheckNoLabels(const TaskChoice& choice, Task task) {
  if (choice.labels == 0 && !choice.problem) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(choice.labels == 0 ? "problem_type" : "num_labels",
                   ": is of task: sequence_classification; this job's is ", NameOf(task)));
}

absl::Status ChooseCausalLm(const TaskChoice& choice, const ModelConfig& config) {
  if (config.task != Task::kCausalLm) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: config.json names ", ArchitectureOf(config),
                     ", which has no head for causal_lm; give task: ", NameOf(config.task)));
  }
  return CheckNoLabels(choice, Task::kCausalLm);
}

// A head of masked tokens is the model's own, and its matrix that of the embedding.
absl::Status ChooseMaskedLm(const TaskChoice& choice, ModelConfig& config) {
  if (!config.encoder || config.of_images()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "task: masked_lm is not offered for ", config.model_type,
        config.of_images() ? ", which reads images; it has image_classification"
                           : ", which is no encoder; it has causal_lm, sequence_classification"));
  }
  if (config.task != Task::kMaskedLm) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: config.json names ", ArchitectureOf(config),
                     ", which has no head for masked_lm; give task: ", NameOf(config.task)));
  }
  if (!config.tied_embeddings) {
    return absl::InvalidArgumentError(
        "task: masked_lm is for models whose head has the embedding's matrix, but config.json's "
        "tie_word_embeddings is false");
  }
  config.new_head = false;
  return CheckNoLabels(choice, Task::kMaskedLm);
}

// The base of a language model without its head.
void AddNewHead(Task task, ModelConfig& config) {
  config.task = task;
  config.labels = kDefaultLabels;
  config.new_head = true;
  config.tied_embeddings = false;
  config.logit_softcap = 0.0;
}

// Of a new head; transformers takes one output for a regression where nobody names the problem.
void SizeNewHead(const TaskChoice& choice, ModelConfig& config) {
  if (!choice.problem && choice.labels == 1 && config.task == Task::kSequenceClassification)
    config.problem = Problem::kRegression;
  if (choice.labels != 0) config.labels = choice.labels;
  if (choice.labels == 0 && config.problem == Problem::kRegression) config.labels = 1;
}

// Whether a model may get a head for a task of classes, or has it.
absl::Status CheckClassification(const TaskChoice& choice, Task task, const ModelConfig& config) {
  if ((task == Task::kImageClassification) != config.of_images()) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: ", NameOf(task), " is not offered for ", config.model_type,
                     config.of_images() ? ", which reads images" : ", which reads no images"));
  }
  if (task == Task::kTokenClassification && !config.encoder) {
    return absl::InvalidArgumentError(absl::StrCat("task: token_classification is not offered for ",
                                                   config.model_type, ", which is no encoder"));
  }
  const bool of_language = config.task == Task::kCausalLm || config.task == Task::kMaskedLm;
  if (task != config.task && !config.new_head && !of_language) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: config.json names ", ArchitectureOf(config), ", which has no head for ",
                     NameOf(task), "; give task: ", NameOf(config.task)));
  }
  if (!choice.problem || task == Task::kSequenceClassification) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "problem_type: is of task: sequence_classification; this job's is ", NameOf(task)));
}

// A model of two halves has its own head, or its encoder one for tokens.
absl::Status CheckHalves(Task task, const ModelConfig& config) {
  const bool of_two = config.has_source() || config.distances.buckets > 0;
  if (task == config.task || (!of_two && task != Task::kSeq2SeqLm)) return absl::OkStatus();
  const char* or_else = config.has_source() ? " or token_classification" : "";
  return absl::InvalidArgumentError(absl::StrCat("task: ", config.model_type, " is trained for ",
                                                 NameOf(config.task), or_else, ", not for ",
                                                 NameOf(task)));
}

}  // namespace

absl::Status ChooseTask(const TaskChoice& choice, ModelConfig& config) {
  if (config.encoder && config.new_head && config.task == Task::kMaskedLm && !choice.task) {
    return absl::InvalidArgumentError(
        absl::StrCat("task: config.json names no head that ", config.model_type,
                     " is trained with; give task: masked_lm, sequence_classification or "
                     "token_classification"));
  }
  const Task task = choice.task.value_or(config.task);
  if (config.has_source() && task == Task::kTokenClassification) {
    KeepEncoder(config);
    AddNewHead(task, config);
  }
  RETURN_IF_ERROR(CheckHalves(task, config));
  if (task == Task::kSeq2SeqLm) return CheckNoLabels(choice, task);
  if (task == Task::kMaskedLm) return ChooseMaskedLm(choice, config);
  if (task == Task::kCausalLm && !config.of_images()) return ChooseCausalLm(choice, config);
  RETURN_IF_ERROR(CheckClassification(choice, task, config));
  // Images' models are published with the classes of the set that they were trained on: who names
  // another number of them wants a new head.
  const bool other_classes =
      config.of_images() && choice.labels != 0 && choice.labels != config.labels;
  if (task != config.task || other_classes) AddNewHead(task, config);
  if (choice.problem) config.problem = *choice.problem;
  if (config.new_head) SizeNewHead(choice, config);
  if (choice.labels != 0 && choice.labels != config.labels) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_labels: ", choice.labels, ", but the model's head has ", config.labels,
                     " (config.json): leave it out, or start from a model without that head"));
  }
  const int64_t fewest = FewestLabels(config.problem);
  if (config.labels >= fewest && config.labels <= kMaxLabels) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("num_labels: ", config.labels, " is outside [",
                                                 fewest, ", ", kMaxLabels,
                                                 "] of problem_type: ", NameOf(config.problem)));
}

const char* NameOf(Task task) {
  switch (task) {
    case Task::kCausalLm:
      return "causal_lm";
    case Task::kSequenceClassification:
      return "sequence_classification";
    case Task::kTokenClassification:
      return "token_classification";
    case Task::kImageClassification:
      return "image_classification";
    case Task::kMaskedLm:
      return "masked_lm";
    case Task::kSeq2SeqLm:
      break;
  }
  return "seq2seq_lm";
}

const char* PeftTaskType(Task task) {
  switch (task) {
    case Task::kCausalLm:
      return "CAUSAL_LM";
    case Task::kSequenceClassification:
      return "SEQ_CLS";
    case Task::kTokenClassification:
      return "TOKEN_CLS";
    case Task::kImageClassification:
    case Task::kMaskedLm:
      return "";
    case Task::kSeq2SeqLm:
      break;
  }
  return "SEQ_2_SEQ_LM";
}

const char* NameOf(Problem problem) {
  switch (problem) {
    case Problem::kSingleLabel:
      return "single_label_classification";
    case Problem::kMultiLabel:
      return "multi_label_classification";
    case Problem::kRegression:
      break;
  }
  return "regression";
}

std::optional<Problem> ProblemOfName(std::string_view name) {
  for (const Problem problem :
       {Problem::kSingleLabel, Problem::kMultiLabel, Problem::kRegression}) {
    if (name == NameOf(problem)) return problem;
  }
  return std::nullopt;
}

}  // namespace snug::program
