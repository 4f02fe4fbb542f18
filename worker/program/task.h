// What a model is trained for: which head it has, which rows that reads, and what a dataset says of
// a document.
#ifndef WORKER_PROGRAM_TASK_H_
#define WORKER_PROGRAM_TASK_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace snug::program {

struct ModelConfig;

enum class Task : uint8_t {
  kCausalLm,                // The next token, of every token that is trained.
  kSequenceClassification,  // One of num_labels classes, of each document.
  kTokenClassification,     // The same of each token that has one.
  kSeq2SeqLm,               // The next token of a target, by a source and what came before.
  kImageClassification,     // The same of each image.
  kMaskedLm,                // The token that stood where one is hidden, by all of its document.
};

// What the label of a document is, and so what it is trained by: transformers' problem_type.
enum class Problem : uint8_t {
  kSingleLabel,  // One class: softmax cross-entropy.
  kMultiLabel,   // Each class is there or not: binary cross-entropy, the mean over classes.
  kRegression,   // A number for each output: the square of what it is off, the mean over them.
};

// Classes of a head: beyond any set of labels there is, and small beside a vocabulary.
inline constexpr int64_t kMaxLabels = 65'536;
// Of a new head where nobody says it, as in transformers.
inline constexpr int64_t kDefaultLabels = 2;

// A job's wish; what it leaves open the model's config.json says.
struct TaskChoice {
  std::optional<Task> task;
  int64_t labels = 0;  // 0: as the model has.
  std::optional<Problem> problem = {};
};

// The model gets the head of the task: its own where config.json names one, else a new one.
// Errors: InvalidArgument, the message begins with the field of the job that is wrong.
absl::Status ChooseTask(const TaskChoice& choice, ModelConfig& config);

// "causal_lm", "seq2seq_lm", as job files spell it, and "CAUSAL_LM", "SEQ_2_SEQ_LM", as PEFT does;
// empty: PEFT has none.
const char* NameOf(Task task);
const char* PeftTaskType(Task task);

// "multi_label_classification", as transformers spells it, and back.
const char* NameOf(Problem problem);
std::optional<Problem> ProblemOfName(std::string_view name);
// All of them, for messages.
inline constexpr char kProblemNames[] =
    "single_label_classification, multi_label_classification, regression";

// Outputs of a head, at least: to choose among one class is no choice.
constexpr int64_t FewestLabels(Problem problem) { return problem == Problem::kSingleLabel ? 2 : 1; }

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TASK_H_
