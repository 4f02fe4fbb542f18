// One attempt as the trainer sees it: what to train, how, and within which memory. Plain data,
// filled by worker/link from the assignment.
#ifndef WORKER_TRAIN_ATTEMPT_H_
#define WORKER_TRAIN_ATTEMPT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/compatibility.h"
#include "worker/program/files/opened_files.h"
#include "worker/program/planning/named_plan.h"
#include "worker/program/planning/predict.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"
#include "worker/train/figures.h"
#include "worker/train/kind_drift.h"
#include "worker/train/training_options.h"

namespace snug::train {

// Of an attempt that answers prompts and trains nothing.
struct AnswerOptions {
  SampleOptions sampling;
  uint64_t seed = 0;
  std::string adapter;     // A PEFT directory, or empty.
  std::string checkpoint;  // A checkpoint folder whose weights come before all others, or empty.
  std::string socket;      // Who listens to the answers.
};

struct AttemptOptions {
  std::string job_id;
  std::string parent_job;  // That it extends; empty: none.
  int64_t begin_step = 0;  // Of the parent's checkpoint: the job's first step is the next one.
  int32_t epoch = 1;       // Of the attempt.
  std::string nonce;
  std::string link_socket;  // Empty: no daemon to report to.

  program::OpenedFiles opened;  // Of model and adapter, for the job's owner.
  std::string model_dir;
  std::string base_model_name;  // What adapter_config.json names as the base.
  std::vector<std::string> added_tokens;
  program::TaskChoice task;
  program::TrainingMode mode;
  std::string init_adapter;    // A PEFT directory, or empty.
  std::string shared_weights;  // A file of frozen weights that jobs share; empty: none.
  bool merge = false;          // Also give the base with the adapter merged into it.
  TrainingOptions training;

  program::NamedPlan plan;       // What it means is settled when the program is built.
  program::TapeKey key;          // Of the worst training batch: what the plan was replayed at.
  std::string device = "cpu:0";  // Of GPUs the process sees this one alone.
  int threads = 1;
  int32_t head_rows = 0;  // The plan's (program::LowerOptions).
  std::string products;   // execute::GemmChoiceText as the node measured it; empty: the default.
  // From one measurement of an inexact gradient to the next, at least; 0: there is none.
  int64_t drift_steps = 0;
  int64_t drift_step = 0;  // In which the job's was last measured, by whatever attempt; 0: none.
  int64_t context_bytes = 0;
  int64_t unseen_bytes = 0;  // Of these, what the process cannot see of itself.
  int64_t cap_bytes = 0;
  // What the daemon reserved, by component; none where nobody planned it.
  std::optional<program::Components> promised;

  std::string train_data;    // Folders of prepared datasets.
  std::string eval_data;     // Empty: none.
  std::string prompts_file;  // To answer at evaluations, prepared; empty: none.
  std::string train_file;    // Names, without folders, of the job's own files: for messages.
  std::string eval_file;
  std::string attempt_dir;
  std::string checkpoints_dir;
  std::string resume_from;       // A checkpoint folder, or empty.
  std::string start_from;        // Another job's, whose weights the run begins with; or empty.
  std::string previous_metrics;  // Or empty.
  std::optional<AnswerOptions> answers;
};

// Another plan for an attempt that is under way, from its next step on.
struct PlanOrder {
  int64_t number = 0;       // 1, 2, 3, ... per job.
  program::NamedPlan plan;  // For the attempt's key and threads.
  int32_t head_rows = 0;    // That plan's (program::LowerOptions).
  int64_t cap_bytes = 0;
  std::optional<program::Components> promised;
};

struct PlanAnswer {
  int64_t number = 0;       // Of the order.
  int64_t global_step = 0;  // The last one under the plan before.
  int64_t current_bytes = 0;
  std::string refusal;  // Why the plan before stays in force; empty: it does not.
};

// A step that does not fit into the memory that there is.
struct Shortage {
  int64_t global_step = 0;  // The last one that was made.
  std::string message;
};

// Where a run stands; what each report carries.
struct TrainingProgress {
  int64_t global_step = 0;
  int64_t max_steps = 0;
  double loss = 0.0;
  double learning_rate = 0.0;
  double grad_norm = 0.0;
  double epoch = 0.0;      // Of the data, fractional.
  int64_t num_tokens = 0;  // Seen so far.
  double tokens_per_second = 0.0;
  double step_seconds = 0.0;
  std::optional<double> eval_loss;
  Figures eval_figures;  // Of the same evaluation.
  DriftByKind drift;     // Of each kind the newest that the attempt has measured.
  std::string drift_not_measured;
  int64_t resumed_from_step = 0;
};

enum class FailureClass : uint8_t { kUser, kOutOfMemory, kInfrastructure };

// How an attempt ended.
struct AttemptResult {
  enum class Outcome : uint8_t { kSucceeded, kFailed, kStopped };
  Outcome outcome = Outcome::kFailed;
  FailureClass failure_class = FailureClass::kUser;
  std::string reason;  // UPPER_SNAKE
  std::string message;
  std::string field;
  TrainingProgress progress;
  int64_t measured_peak_bytes = 0;
  std::string output_dir;
  double verified_loss = 0.0;
  std::optional<double> merged_loss;              // Of the merged model, read from its files.
  std::string merge_error;                        // Why there is none, though it was asked for.
  std::vector<checkpoint::ReaderReport> readers;  // Of an adapter.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_ATTEMPT_H_
