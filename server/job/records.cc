#include "server/job/records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"

namespace snug::server {

absl::Status JobRecord::TransitionTo(JobState from, JobState to, std::string reason,
                                     int64_t wall_us) {
  if (state() != from)
    return absl::InternalError(absl::StrCat("job ", key(), " is ", NameOf(state()), ", not ",
                                            NameOf(from), ": cannot move it to ", NameOf(to)));
  RETURN_IF_ERROR(CheckMove(from, to));
  job.set_state(to);
  job.set_reason(std::move(reason));
  const auto now = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(wall_us);
  if (to == v1::Job::STATE_RUNNING && !job.has_start_time()) *job.mutable_start_time() = now;
  if (IsTerminal(to)) *job.mutable_end_time() = now;
  if (!HasAttempt(to)) job.set_worker_pid(0);
  return absl::OkStatus();
}

absl::Status MoveJob(JobRecord& record, JobState to, std::string reason, int64_t wall_us,
                     Change& change) {
  const JobState from = record.state();
  RETURN_IF_ERROR(record.TransitionTo(from, to, reason, wall_us));
  change.events.push_back({.job = record.key(),
                           .from = from,
                           .to = to,
                           .reason = std::move(reason),
                           .wall_us = wall_us});
  return absl::OkStatus();
}

absl::Status AttemptRecord::TransitionTo(AttemptState from, AttemptState to) {
  if (state != from)
    return absl::InternalError(absl::StrCat("attempt ", epoch, " of job ", job, " is ",
                                            NameOf(state), ", not ", NameOf(from)));
  RETURN_IF_ERROR(CheckMove(from, to));
  state = to;
  return absl::OkStatus();
}

}  // namespace snug::server
