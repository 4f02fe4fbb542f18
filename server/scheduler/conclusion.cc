#include "server/scheduler/conclusion.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/job/transient.h"
#include "server/scheduler/reports.h"

namespace snug::server {
namespace {

constexpr const char* kNoExitRecord = "no exit record";

v1::Error MakeError(const char* reason, absl::string_view message) {
  v1::Error error;
  error.set_reason(reason);
  error.set_message(std::string(message));
  return error;
}

std::string PlaceOf(const std::optional<CheckpointRecord>& newest) {
  return newest ? absl::StrCat("its checkpoint of step ", newest->step) : "its beginning";
}

// However its attempt ended: what follows the checkpoint is done again.
std::string PausedReason(const Outcome& outcome, const std::string& cause,
                         const std::optional<CheckpointRecord>& newest) {
  const bool asked = outcome.ending == Ending::kStopped;
  return absl::StrCat("paused", cause.empty() ? "" : ": ", cause,
                      asked ? "" : "; its worker was lost", "; goes on from ", PlaceOf(newest));
}

std::string WhyNothingIsKept(const v1::Job& job, const ClosedAttempt& closed) {
  const Outcome& outcome = closed.outcome;
  if (outcome.ending == Ending::kSucceeded)
    return absl::StrCat("its output is damaged: ", closed.output.status().message());
  if (outcome.ending == Ending::kInfrastructure)
    return absl::StrCat("its worker was lost: ", outcome.error.message());
  if (outcome.ending != Ending::kStopped) return outcome.error.message();
  return HasTrained(job) ? "its worker has stopped" : "it had made no step";
}

// The rows of one end while they are worked out.
struct Concluding {
  const ClosedAttempt& closed;
  const Moment& moment;
  JobRecord& job;
  const AttemptRecord& attempt;
  Change& change;

  absl::Status Move(JobState to, std::string reason) {
    return MoveJob(job, to, std::move(reason), moment.now_us, change);
  }
  absl::Status Fail(v1::Error error) {
    std::string message = error.message();
    *job.job.mutable_error() = std::move(error);
    return Move(v1::Job::STATE_FAILED, std::move(message));
  }
  void TakeResult();
  void TakeOutput();
  absl::Status Damaged();
  absl::Status Kept();
  absl::Status KeptUnheard();
  absl::Status Ended();
  absl::Status Lost();
};

void Concluding::TakeResult() {
  const v1::WorkerResult& result = closed.outcome.result;
  if (result.has_progress()) *job.job.mutable_progress() = result.progress();
  v1::JobMemory& memory = *job.job.mutable_memory();
  memory.set_measured_peak_bytes(
      std::max(memory.measured_peak_bytes(), result.measured_peak_bytes()));
}

// One that is good.
void Concluding::TakeOutput() {
  change.artifact = *closed.output;
  job.output_dir = closed.output->dir;
  const v1::WorkerResult& result = closed.outcome.result;
  if (result.has_output()) *job.job.mutable_output() = result.output();
}

// Its worker was asked to export what there is, and has ended. It may have made its last step, and
// so its output, before it heard of that.
absl::Status Concluding::Kept() {
  TakeResult();
  if (closed.outcome.ending != Ending::kSucceeded || !closed.output.ok())
    return Move(v1::Job::STATE_CANCELLED,
                absl::StrCat("cancelled without an output: ", WhyNothingIsKept(job.job, closed)));
  TakeOutput();
  return Move(v1::Job::STATE_CANCELLED, "cancelled; what there was is its output");
}

// Its worker was to hear of that at its Hello, which was not heard.
absl::Status Concluding::KeptUnheard() {
  RETURN_IF_ERROR(Move(v1::Job::STATE_CANCELLING, "its worker has ended"));
  return Kept();
}

// It has trained, and nothing of that can be read: whether it begins anew is for its user to say.
absl::Status Concluding::Damaged() {
  if (job.state() != v1::Job::STATE_PAUSING)
    RETURN_IF_ERROR(Move(v1::Job::STATE_QUEUED, closed.outcome.error.message()));
  job.job.set_keep(false);
  return Move(v1::Job::STATE_PAUSED, DamagedReason(closed.checkpoints.status().message()));
}

absl::Status Concluding::Ended() {
  const Outcome& outcome = closed.outcome;
  TakeResult();
  // It ran, whether or not its Hello was heard: the daemon may have been away.
  const bool ran = outcome.ending == Ending::kSucceeded || outcome.ending == Ending::kUserError;
  if (ran && job.job.keep()) return KeptUnheard();
  if (ran && job.state() == v1::Job::STATE_STARTING)
    RETURN_IF_ERROR(Move(v1::Job::STATE_RUNNING, "ran while the daemon was away"));
  if (outcome.ending == Ending::kSucceeded && closed.output.ok()) {
    TakeOutput();
    return Move(v1::Job::STATE_SUCCEEDED, "finished");
  }
  if (outcome.ending == Ending::kSucceeded)
    return Fail(MakeError("BAD_ARTIFACT", closed.output.status().message()));
  if (outcome.ending == Ending::kUserError) return Fail(outcome.error);
  if (!closed.checkpoints.ok()) return Damaged();
  const std::optional<CheckpointRecord>& newest = closed.checkpoints->newest;
  if (job.state() == v1::Job::STATE_PAUSING)
    return Move(v1::Job::STATE_PAUSED, PausedReason(outcome, job.job.pause_cause(), newest));
  if (!closed.moves.empty() && outcome.ending == Ending::kStopped)
    return Move(v1::Job::STATE_QUEUED,
                absl::StrCat(closed.moves, "; goes on from ", PlaceOf(newest)));
  return Lost();
}

// Tried again, as often as it may be.
absl::Status Concluding::Lost() {
  const std::optional<CheckpointRecord>& newest = closed.checkpoints->newest;
  const bool progressed = newest && newest->step > attempt.resume_step;
  v1::Error error = closed.outcome.error;
  Ending ending = closed.outcome.ending;
  if (ending == Ending::kOutOfMemory && closed.taken_bytes > 0) {  // The plan was right, and stays.
    ending = Ending::kInfrastructure;
    error = MakeError("MEMORY_TAKEN",
                      absl::StrCat("others have taken ", FormatBytes(closed.taken_bytes),
                                   " of what it was promised on ", job.job.device()));
  }
  if (attempt.exit != closed.outcome.exit)
    error = MakeError("CANNOT_START", absl::StrCat("its worker was not started: ", attempt.exit));
  if (IsTransient(closed.not_started)) ending = Ending::kTransient;
  const RetryDecision retry =
      DecideRetry(ending, {job.infra_failures, job.oom_failures}, progressed, moment.jitter);
  job.infra_failures = retry.failures.infra;
  job.oom_failures = retry.failures.oom;
  if (!retry.retry && job.job.keep()) return KeptUnheard();
  if (!retry.retry) {
    error.set_message(absl::StrCat(error.message(), "; no retries are left"));
    return Fail(std::move(error));
  }
  job.not_before_us = moment.now_us + absl::ToInt64Microseconds(retry.delay);
  return Move(v1::Job::STATE_QUEUED,
              absl::StrCat(error.message().empty() ? "the worker stopped" : error.message(), "; ",
                           retry.reason));
}

}  // namespace

absl::Status Conclude(const ClosedAttempt& closed, const Moment& moment, JobRecord& job,
                      AttemptRecord& attempt, Change& change) {
  if (closed.outcome.exit != kNoExitRecord || attempt.exit.empty())
    attempt.exit = closed.outcome.exit;
  const bool never_started =
      attempt.state == AttemptState::kIntent && attempt.exit == kNoExitRecord;
  RETURN_IF_ERROR(attempt.TransitionTo(attempt.state, AttemptState::kExited));
  RETURN_IF_ERROR(attempt.TransitionTo(AttemptState::kExited, AttemptState::kClosed));
  if (closed.checkpoints.ok()) change.checkpoints = closed.checkpoints->records;
  job.job.mutable_plan_changes()->clear_pending();
  job.job.mutable_plan_changes()->clear_limit_bytes();
  job.job.mutable_plan_changes()->clear_most_bytes();
  if (job.job.has_displacement()) job.job.mutable_displacement()->clear_pending();
  if (job.job.has_step_time()) job.job.mutable_step_time()->clear_slowdown();
  Concluding concluding{closed, moment, job, attempt, change};
  if (job.state() == v1::Job::STATE_CANCELLING)
    return job.job.keep() ? concluding.Kept()
                          : concluding.Move(v1::Job::STATE_CANCELLED, "cancelled");
  if (never_started && job.state() != v1::Job::STATE_PAUSING)  // The daemon was killed then.
    return concluding.Move(v1::Job::STATE_QUEUED, "its attempt was never started");
  const absl::Status ended = concluding.Ended();
  if (job.state() != v1::Job::STATE_PAUSED) job.job.clear_pause_cause();
  return ended;
}

std::string DamagedReason(absl::string_view what) {
  return absl::StrCat("paused: ", what, "; resume it when they are put back, or rerun it");
}

absl::string_view NameForMetrics(JobState state, const ClosedAttempt& closed) {
  const Ending ending = closed.outcome.ending;
  if (state == v1::Job::STATE_CANCELLED) return "cancelled";
  if (!closed.moves.empty() && ending == Ending::kStopped) return "moved";
  if (state == v1::Job::STATE_PAUSED) return "paused";
  if (ending == Ending::kSucceeded && state == v1::Job::STATE_SUCCEEDED) return "succeeded";
  if (ending == Ending::kOutOfMemory) return "out_of_memory";
  if (ending == Ending::kUserError || ending == Ending::kSucceeded) return "failed";
  return "lost";
}

}  // namespace snug::server
