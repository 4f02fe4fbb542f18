// Rows of a job as the scheduler has them, in each of its states.
#ifndef TESTS_SERVER_SCHEDULER_JOB_ROWS_H_
#define TESTS_SERVER_SCHEDULER_JOB_ROWS_H_

#include <optional>
#include <string>

#include "server/scheduler/job_step.h"

namespace snug::server {

struct Rows {
  JobRecord job;
  std::optional<AttemptRecord> attempt;

  operator JobRows() const { return {job, attempt ? &*attempt : nullptr}; }
};

inline Rows RowsIn(JobState state) {
  Rows rows;
  rows.job.job.set_id("a");
  rows.job.job.set_state(state);
  rows.job.job.set_device("cpu:0");
  if (state != v1::Job::STATE_PREPARING) rows.job.train_data = "/data";
  if (!HasAttempt(state)) return rows;
  rows.job.job.set_epoch(1);
  rows.attempt = AttemptRecord{.job = "a", .epoch = 1, .state = AttemptState::kLive};
  rows.attempt->device = "device";
  rows.attempt->cap_bytes = 100;
  return rows;
}

inline v1::Plan PlanOf(const std::string& name) {
  v1::Plan plan;
  plan.set_name(name);
  return plan;
}

}  // namespace snug::server

#endif  // TESTS_SERVER_SCHEDULER_JOB_ROWS_H_
