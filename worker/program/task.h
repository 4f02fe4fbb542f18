// What a model is trained for: which head it has, which rows that reads, and what a dataset says of
// a document.
#ifndef WORKER_PROGRAM_TASK_H_
#define WORKER_PROGRAM_TASK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace snug::program {

struct ModelConfig;

enum class Task : uint8_t {
  kCausalLm,                // The next token, of every token that is trained.
  kSequenceClassification,  // One of num_labels classes, of each document.
};

// Classes of a head: beyond any set of labels there is, and small beside a vocabulary.
inline constexpr int64_t kMaxLabels = 65'536;
// Of a new head where nobody says it, as in transformers.
inline constexpr int64_t kDefaultLabels = 2;

// A job's wish; what it leaves open the model's config.json says.
struct TaskChoice {
  std::optional<Task> task;
  int64_t labels = 0;  // 0: as the model has.
};

// The model gets the head of the task: its own where config.json names one, else a new one.
// Errors: InvalidArgument, the message begins with the field of the job that is wrong.
absl::Status ChooseTask(const TaskChoice& choice, ModelConfig& config);

// "causal_lm", as job files spell it, and "CAUSAL_LM", as PEFT does.
const char* NameOf(Task task);
const char* PeftTaskType(Task task);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TASK_H_
