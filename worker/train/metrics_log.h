// metrics.jsonl of an attempt: one JSON object per line, each global_step once over the whole job,
// whatever attempts it took; of a job that extends another, those behind where it begins. A line is
// written with one call to the system when its step is done. A kill may tear the last line (between
// two pages of the file), which Resume drops; Sync, before each checkpoint, makes the lines up to
// it outlive the machine too.
//   {"loss","grad_norm","learning_rate","epoch","global_step","num_tokens","samples",
//    "mean_token_accuracy","entropy","tokens_per_second","step_seconds",
//    "time"}                                                    after an optimizer step
//   {"eval_loss","eval_entropy","eval_mean_token_accuracy","eval_runtime","global_step","epoch",
//    "time"}                                                    after an evaluation
// Of other tasks, evaluations have the metrics that program::EvalMetricsOf says in these places.
// "time" is that of the day, in seconds since 1970, UTC.
// No torch here; keeps no line in memory.
#ifndef WORKER_TRAIN_METRICS_LOG_H_
#define WORKER_TRAIN_METRICS_LOG_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/figures.h"

namespace snug::train {

struct StepMetrics {
  double loss = 0.0;
  double grad_norm = 0.0;
  double learning_rate = 0.0;
  double epoch = 0.0;                // Of the data, fractional.
  int64_t global_step = 0;           // From 1.
  int64_t num_tokens = 0;            // Of the run so far.
  int64_t samples = 0;               // Rows of the data in this step, however they are packed.
  double mean_token_accuracy = 0.0;  // Of the trained tokens: those that the model ranks first.
  // What that share is called: of documents that are classified, accuracy. Null: the task has no
  // such share, and no entropy.
  const char* accuracy_name = kTokenAccuracy;
  double entropy = 0.0;  // Nats per trained token.
  double tokens_per_second = 0.0;
  double step_seconds = 0.0;
};

struct EvalMetrics {
  double eval_loss = 0.0;
  Figures figures;
  double runtime = 0.0;  // Seconds.
  int64_t global_step = 0;
  double epoch = 0.0;
};

// Where a run goes on: the lines of an earlier attempt, up to the step it resumes from.
struct MetricsResume {
  std::string previous;  // Path of its metrics.jsonl.
  int64_t step = 0;      // Of the checkpoint.
  int64_t begin = 0;     // The first line is of the step behind it.
};

// What the lines so far say, and so which may follow.
struct MetricsSteps {
  int64_t last = 0;
  int64_t last_evaluated = -1;  // -1: no evaluation yet.
  double eval_loss = 0.0;       // Of that evaluation.
  Figures eval_figures;         // The other figures of it.
};

class MetricsLog {
 public:
  // An empty log at `path`, which must not exist; its first step is the one behind `begin`.
  static absl::StatusOr<MetricsLog> Create(const std::string& path, int64_t begin = 0);

  // A log that begins with the previous one's lines whose global_step <= resume.step; there before
  // anything is appended, or not at all. A last line without its end is dropped. DATA_LOSS, with
  // file and line: another line is broken, or a step up to resume.step is not there exactly once
  // and in order.
  static absl::StatusOr<MetricsLog> Resume(const std::string& path, const MetricsResume& resume);

  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;
  ~MetricsLog();

  // INVALID_ARGUMENT for a number that is not finite, and for any step but the one after the last
  // (an evaluation: the last itself, once). A line that finds the disk full is taken back.
  absl::Status Append(const StepMetrics& metrics);
  absl::Status Append(const EvalMetrics& metrics);

  absl::Status Sync();

  const MetricsSteps& steps() const { return steps_; }

 private:
  MetricsLog(std::string path, int fd, int64_t bytes, MetricsSteps steps);
  absl::Status AppendLine(const nlohmann::ordered_json& line);
  absl::Status Write(const std::string& line);

  std::string path_;
  int fd_;
  int64_t bytes_;
  MetricsSteps steps_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_METRICS_LOG_H_
