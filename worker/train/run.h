// What the parts of one attempt share: its trainer, where it stands, and whom it tells. The parts
// are RunMetrics (lines of its files, reports), RunCheckpoints (resume, save, the best one),
// RunEvaluations (losses) and RunOutput (export, merge); run_attempt.cc puts them in order.
#ifndef WORKER_TRAIN_RUN_H_
#define WORKER_TRAIN_RUN_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "worker/execute/device.h"
#include "worker/link/worker_link.h"
#include "worker/program/planning/memory_look.h"
#include "worker/train/attempt.h"
#include "worker/train/trainer.h"

namespace snug::train {

// TensorBoard takes a file for one of its own when the name has "tfevents" in it.
inline constexpr char kEventsName[] = "events.out.tfevents.snug";

struct Run {
  const AttemptOptions& attempt;
  execute::Device& device;
  link::WorkerLink& link;
  std::unique_ptr<Trainer> trainer;  // Null before it is made, and while a merge replaces it.
  TrainingProgress progress;
  std::vector<program::MemoryLook> looks = {};  // Under the plan in force.

  std::string metrics_file() const { return attempt.attempt_dir + "/metrics.jsonl"; }
  std::string samples_file() const { return attempt.attempt_dir + "/samples.jsonl"; }
  std::string events_file() const { return attempt.attempt_dir + "/" + kEventsName; }
  std::string output() const { return attempt.attempt_dir + "/output"; }
  std::string unpublished_output() const { return output() + ".tmp"; }
};

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace snug::train

#endif  // WORKER_TRAIN_RUN_H_
