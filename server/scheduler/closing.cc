// The end of an attempt: its lock is free. What it left is looked at on a pool, then job, attempt,
// reservation, checkpoints and artifact change in one transaction.
#include <signal.h>

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/output.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/transient.h"
#include "server/node/descriptors.h"
#include "server/node/session.h"
#include "server/node/shared_weights.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/drains.h"
#include "server/scheduler/reports.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {
namespace {

constexpr int kKillRounds = 50;
constexpr absl::Duration kKillPause = absl::Milliseconds(100);

struct Remains {
  JobRecord job;
  AttemptRecord attempt;
  AttemptIdentity identity;
  std::string attempt_dir;
  std::string checkpoints_dir;
};

// A shim that was killed leaves its worker behind. Nothing may run in the attempt's name when the
// next one starts.
absl::Status KillOrphans(const Remains& remains) {
  if (remains.attempt.boot_id != BootId())
    return absl::OkStatus();  // The machine has been started anew.
  const pid_t shim = remains.attempt.shim_pid > 0 ? static_cast<pid_t>(remains.attempt.shim_pid)
                                                  : ShimPid(remains.attempt_dir);
  for (int round = 0; round < kKillRounds; ++round) {
    const DescriptorLoan loan;
    ASSIGN_OR_RETURN(const int signalled, SignalSession(shim, remains.attempt_dir, SIGKILL));
    if (signalled == 0) return absl::OkStatus();
    absl::SleepFor(kKillPause);
  }
  return absl::UnavailableError(
      absl::StrCat("processes of ", remains.attempt_dir, " do not die: its bytes stay reserved"));
}

absl::StatusOr<ArtifactRecord> OutputOf(const Remains& remains, const v1::WorkerResult& result,
                                        const JobIndex& index, Inspector& inspector) {
  const v1::JobSpec& spec = remains.job.job.spec();
  const Principal owner = OwnerOf(remains.job.job);
  ASSIGN_OR_RETURN(
      const CheckedJob checked,
      inspector.Check(spec, [&](const std::string& id) { return index.FinishedModel(id, owner); },
                      {.who = owner, .inputs = InputFiles::kDone}));
  ASSIGN_OR_RETURN(ArtifactRecord artifact,
                   VerifyOutput(remains.attempt_dir, result, *checked.program,
                                spec.method() == v1::JobSpec::LORA));
  artifact.job = remains.attempt.job;
  artifact.epoch = remains.attempt.epoch;
  return artifact;
}

absl::StatusOr<ClosedAttempt> LookAt(const Remains& remains, const JobIndex& index,
                                     Inspector& inspector) {
  RETURN_IF_ERROR(KillOrphans(remains));
  const DescriptorLoan loan;
  ClosedAttempt closed;
  const auto exit = ReadExitRecord(remains.attempt_dir, remains.identity);
  const auto result = ReadResult(remains.attempt_dir);
  // What cannot be read now is no verdict: a success would be taken for a loss.
  for (const absl::Status& read : {exit.status(), result.status()})
    if (!read.ok() && !absl::IsDataLoss(read)) return read;
  closed.outcome = Judge(exit, result);
  DropAbsurd(closed.outcome.result, MaxSteps(remains.job.job));
  if (closed.outcome.ending == Ending::kSucceeded) {
    closed.output = OutputOf(remains, closed.outcome.result, index, inspector);
    if (IsTransient(closed.output.status())) return closed.output.status();
  } else {
    closed.checkpoints = FindNewest(remains.attempt.job, remains.checkpoints_dir);
    if (IsTransient(closed.checkpoints.status())) return closed.checkpoints.status();
  }
  return closed;
}

double Jitter() {
  static thread_local std::mt19937 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(-1.0, 1.0)(generator);
}

v1::Error MakeError(const char* reason, std::string message) {
  v1::Error error;
  error.set_reason(reason);
  error.set_message(std::move(message));
  return error;
}

absl::Status Fail(JobRecord& job, v1::Error error, Change& change) {
  *job.job.mutable_error() = error;
  return MoveJob(job, v1::Job::FAILED, error.message(), WallMicros(), change);
}

// Bytes of what is promised on the device that others have.
int64_t TakenOfPromises(const std::vector<DeviceState>& states, const std::string& device) {
  for (const DeviceState& state : states)
    if (state.name == device && state.taken_bytes > 0)
      return state.reserved_bytes + state.taken_bytes - state.capacity_bytes;
  return 0;
}

std::string PlaceOf(const std::optional<CheckpointRecord>& newest) {
  return newest ? absl::StrCat("its checkpoint of step ", newest->step) : "its beginning";
}

// However its attempt ended: what follows the checkpoint is done again.
std::string PausedReason(const Outcome& outcome, const std::optional<CheckpointRecord>& newest) {
  const std::string from = PlaceOf(newest);
  const bool asked = outcome.ending == Ending::kStopped;
  return absl::StrCat(asked ? "paused" : "paused; its worker was lost", "; goes on from ", from);
}

void TakeResult(JobRecord& job, const v1::WorkerResult& result) {
  if (result.has_progress()) *job.job.mutable_progress() = result.progress();
  v1::JobMemory& memory = *job.job.mutable_memory();
  memory.set_measured_peak_bytes(
      std::max(memory.measured_peak_bytes(), result.measured_peak_bytes()));
}

// One that is good.
void TakeOutput(JobRecord& job, const ClosedAttempt& closed, Change& change) {
  change.artifact = *closed.output;
  job.output_dir = closed.output->dir;
  const v1::WorkerResult& result = closed.outcome.result;
  if (result.has_output()) *job.job.mutable_output() = result.output();
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

// Its worker was asked to export what there is, and has ended. It may have made its last step, and
// so its output, before it heard of that.
absl::Status ConcludeKept(JobRecord& job, const ClosedAttempt& closed, Change& change) {
  TakeResult(job, closed.outcome.result);
  std::string reason = "cancelled; what there was is its output";
  if (closed.outcome.ending == Ending::kSucceeded && closed.output.ok())
    TakeOutput(job, closed, change);
  else
    reason = absl::StrCat("cancelled without an output: ", WhyNothingIsKept(job.job, closed));
  return MoveJob(job, v1::Job::CANCELLED, std::move(reason), WallMicros(), change);
}

// `taken`: bytes of what is promised on its device that others have.
absl::Status Conclude(JobRecord& job, const AttemptRecord& attempt, const ClosedAttempt& closed,
                      int64_t taken, Change& change) {
  const Outcome& outcome = closed.outcome;
  TakeResult(job, outcome.result);
  // It ran, whether or not its Hello was heard: the daemon may have been away.
  const bool ran = outcome.ending == Ending::kSucceeded || outcome.ending == Ending::kUserError;
  if (ran && job.state() == v1::Job::STARTING)
    RETURN_IF_ERROR(
        MoveJob(job, v1::Job::RUNNING, "ran while the daemon was away", WallMicros(), change));
  if (outcome.ending == Ending::kSucceeded && closed.output.ok()) {
    TakeOutput(job, closed, change);
    return MoveJob(job, v1::Job::SUCCEEDED, "finished", WallMicros(), change);
  }
  if (outcome.ending == Ending::kSucceeded)
    return Fail(job, MakeError("BAD_ARTIFACT", std::string(closed.output.status().message())),
                change);
  if (outcome.ending == Ending::kUserError) return Fail(job, outcome.error, change);
  if (!closed.checkpoints.ok())
    return Fail(
        job, MakeError("CHECKPOINTS_DAMAGED", std::string(closed.checkpoints.status().message())),
        change);
  const auto& newest = closed.checkpoints->newest;
  if (job.state() == v1::Job::PAUSING)
    return MoveJob(job, v1::Job::PAUSED, PausedReason(outcome, newest), WallMicros(), change);
  if (closed.moves && outcome.ending == Ending::kStopped)
    return MoveJob(job, v1::Job::QUEUED,
                   absl::StrCat("moved off ", job.job.device(), ", which is drained; goes on from ",
                                PlaceOf(newest)),
                   WallMicros(), change);
  const bool progressed = newest && newest->step > attempt.resume_step;
  v1::Error error = outcome.error;
  Ending ending = outcome.ending;
  if (ending == Ending::kOutOfMemory && taken > 0) {  // The plan was right, and stays.
    ending = Ending::kInfrastructure;
    error = MakeError("MEMORY_TAKEN",
                      absl::StrCat("others have taken ", FormatBytes(taken), " of what it was ",
                                   "promised on ", job.job.device()));
  }
  if (attempt.exit != outcome.exit)
    error = MakeError("CANNOT_START", absl::StrCat("its worker was not started: ", attempt.exit));
  if (IsTransient(closed.not_started)) ending = Ending::kTransient;
  const RetryDecision retry =
      DecideRetry(ending, {job.infra_failures, job.oom_failures}, progressed, Jitter());
  job.infra_failures = retry.failures.infra;
  job.oom_failures = retry.failures.oom;
  if (!retry.retry) {
    error.set_message(absl::StrCat(error.message(), "; no retries are left"));
    return Fail(job, std::move(error), change);
  }
  job.not_before_us = WallMicros() + absl::ToInt64Microseconds(retry.delay);
  return MoveJob(job, v1::Job::QUEUED,
                 absl::StrCat(error.message().empty() ? "the worker stopped" : error.message(),
                              "; ", retry.reason),
                 WallMicros(), change);
}

absl::string_view NameForMetrics(JobState state, const ClosedAttempt& closed) {
  const Ending ending = closed.outcome.ending;
  if (state == v1::Job::CANCELLED) return "cancelled";
  if (closed.moves && ending == Ending::kStopped) return "moved";
  if (state == v1::Job::PAUSED) return "paused";
  if (ending == Ending::kSucceeded && state == v1::Job::SUCCEEDED) return "succeeded";
  if (ending == Ending::kOutOfMemory) return "out_of_memory";
  if (ending == Ending::kUserError || ending == Ending::kSucceeded) return "failed";
  return "lost";
}

}  // namespace

void Scheduler::BeginClosing(Entry& entry) {
  const AttemptRecord& attempt = entry.attempt->record;
  const std::string& state_dir = settings_.launcher.state_dir;
  ReapShim(static_cast<pid_t>(attempt.shim_pid));
  Remains remains{.job = entry.record,
                  .attempt = attempt,
                  .identity = {.instance = settings_.launcher.instance,
                               .job = attempt.job,
                               .epoch = attempt.epoch,
                               .nonce = attempt.nonce},
                  .attempt_dir = AttemptDir(state_dir, attempt.job, attempt.epoch),
                  .checkpoints_dir = CheckpointsDir(state_dir, attempt.job)};
  entry.attempt->closing = closing_pool_.Post([this, remains = std::move(remains)] {
    auto closed = std::make_shared<absl::StatusOr<ClosedAttempt>>(
        LookAt(remains, index_, settings_.inspector));
    Post([this, id = remains.attempt.job, epoch = remains.attempt.epoch, closed] {
      OnClosing(id, epoch, std::move(*closed));
    });
  });
}

void Scheduler::OnClosing(const std::string& id, int epoch, absl::StatusOr<ClosedAttempt> closed) {
  Entry* entry = Find(id);
  if (entry == nullptr || entry->attempt == nullptr || entry->attempt->record.epoch != epoch)
    return;
  entry->attempt->closing = false;
  absl::Status status = closed.status();
  if (status.ok()) closed->not_started = entry->attempt->not_started;
  if (status.ok()) closed->moves = Drains(*this).Moves(*entry);
  if (status.ok()) status = FinishClosing(*entry, *closed);
  if (status.ok()) return;
  // The rows still say that the attempt is open, so a later tick tries again.
  entry->attempt->close_again = SinceBoot() + settings_.limits.close_again;
  spdlog::error("job {}: closing attempt {}: {}", id, epoch, status.message());
}

absl::Status Scheduler::FinishClosing(Entry& entry, const ClosedAttempt& closed) {
  AttemptRecord attempt = entry.attempt->record;
  if (closed.outcome.exit != "no exit record" || attempt.exit.empty())
    attempt.exit = closed.outcome.exit;
  const bool never_started =
      attempt.state == AttemptState::kIntent && attempt.exit == "no exit record";
  RETURN_IF_ERROR(attempt.TransitionTo(attempt.state, AttemptState::kExited));
  RETURN_IF_ERROR(attempt.TransitionTo(AttemptState::kExited, AttemptState::kClosed));
  Change change{.attempt = &attempt, .release = true};
  if (closed.checkpoints.ok()) change.checkpoints = closed.checkpoints->records;
  JobRecord changed = entry.record;
  changed.job.mutable_plan_changes()->clear_pending();
  changed.job.mutable_plan_changes()->clear_limit_bytes();
  if (changed.state() == v1::Job::CANCELLING && changed.job.keep())
    RETURN_IF_ERROR(ConcludeKept(changed, closed, change));
  else if (changed.state() == v1::Job::CANCELLING)
    RETURN_IF_ERROR(MoveJob(changed, v1::Job::CANCELLED, "cancelled", WallMicros(), change));
  else if (never_started && changed.state() != v1::Job::PAUSING)  // The daemon was killed then.
    RETURN_IF_ERROR(
        MoveJob(changed, v1::Job::QUEUED, "its attempt was never started", WallMicros(), change));
  else
    RETURN_IF_ERROR(Conclude(changed, attempt, closed,
                             TakenOfPromises(DeviceStates(), changed.job.device()), change));
  RETURN_IF_ERROR(Save(entry, std::move(changed), std::move(change), Urgency::kMustLand));
  if (closed.outcome.result.has_progress()) Count(entry, closed.outcome.result.progress());
  metrics_.Attempt(NameForMetrics(entry.state(), closed));
  metrics_.Prediction(entry.attempt->record.plan.peak_bytes(),
                      closed.outcome.result.measured_peak_bytes());
  metrics_.ForgetJob(entry.id());
  ledger_.Release(entry.id());
  pool_.Post([state_dir = settings_.launcher.state_dir] { SweepSharedWeights(state_dir); });
  if (entry.attempt->link != 0) link_->Close(entry.attempt->link);
  entry.attempt.reset();
  if (entry.ready && closed.checkpoints.ok()) entry.ready->resume = closed.checkpoints->newest;
  // Its parent's is to be looked at again.
  if (entry.ready && !entry.ready->resume && entry.record.job.extends_step() > 0)
    entry.ready.reset();
  entry.retry_cause = entry.record.job.reason();
  changed_ = true;
  ShowDevices();
  if (IsTerminal(entry.state())) {
    Drop(entry.id());
  } else if (entry.state() == v1::Job::QUEUED) {
    if (!entry.ready) AwaitReady(entry);
    Enqueue(entry);
  }
  return absl::OkStatus();
}

}  // namespace snug::server
