// What an attempt tells of itself: lines of metrics.jsonl and samples.jsonl for programs, events
// for TensorBoard, the worker's log for people, reports to the node.
#ifndef WORKER_TRAIN_RUN_METRICS_H_
#define WORKER_TRAIN_RUN_METRICS_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/report/event_log.h"
#include "worker/train/drift.h"
#include "worker/train/metrics_log.h"
#include "worker/train/run.h"
#include "worker/train/samples_log.h"

namespace snug::train {

class RunMetrics {
 public:
  explicit RunMetrics(Run& run) : run_(run) {}

  // After the run has resumed: both files begin with the attempt before's lines up to its step.
  absl::Status Open();

  // Of the step just made, whose numbers are in the run's progress.
  absl::Status Log(const StepResult& step);
  void Tell() const;
  void Tell(const Drift& drift) const;
  void Report() const;

  // The answers come before the line: whoever resumes takes an evaluation that has its line as
  // done.
  absl::Status Log(const EvalMetrics& evaluation, const std::vector<Sample>& answers);

  absl::Status Sync() { return log_->Sync(); }
  const MetricsSteps& steps() const { return log_->steps(); }

 private:
  absl::Status OpenSamples() const;
  absl::Status OpenEvents();
  absl::Status FollowEvents() { return events_ ? events_->Follow() : absl::OkStatus(); }

  Run& run_;
  std::optional<MetricsLog> log_;
  std::optional<report::EventLog> events_;  // None: the job asks for none.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_RUN_METRICS_H_
