#include "server/scheduler/closing.h"

#include <signal.h>

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/output.h"
#include "server/job/log.h"
#include "server/job/transient.h"
#include "server/node/descriptors.h"
#include "server/node/session.h"
#include "server/node/shared_weights.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/core.h"
#include "server/scheduler/reports.h"

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

// Bytes of what is promised on the device that others have.
int64_t TakenOfPromises(const std::vector<DeviceState>& states, const std::string& device) {
  for (const DeviceState& state : states)
    if (state.name == device && state.taken_bytes > 0)
      return state.reserved_bytes + state.taken_bytes - state.capacity_bytes;
  return 0;
}

}  // namespace

void Closing::Begin(Entry& entry) {
  const AttemptRecord& attempt = entry.attempt->record;
  const std::string& state_dir = core_.settings.launcher.state_dir;
  ReapShim(static_cast<pid_t>(attempt.shim_pid));
  Remains remains{.job = entry.record,
                  .attempt = attempt,
                  .identity = {.instance = core_.settings.launcher.instance,
                               .job = attempt.job,
                               .epoch = attempt.epoch,
                               .nonce = attempt.nonce},
                  .attempt_dir = AttemptDir(state_dir, attempt.job, attempt.epoch),
                  .checkpoints_dir = CheckpointsDir(state_dir, attempt.job)};
  const bool begun = pool_.Post([this, remains = std::move(remains)] {
    auto closed = std::make_shared<absl::StatusOr<ClosedAttempt>>(
        LookAt(remains, core_.index, core_.settings.inspector));
    core_.Post([this, id = remains.attempt.job, epoch = remains.attempt.epoch, closed] {
      OnLookedAt(id, epoch, std::move(*closed));
    });
  });
  if (begun) entry.attempt->end.stage = AttemptEnd::Stage::kClosing;
}

void Closing::OnLookedAt(const std::string& id, int epoch, absl::StatusOr<ClosedAttempt> closed) {
  Entry* entry = core_.Find(id);
  if (entry == nullptr || entry->attempt == nullptr || entry->attempt->record.epoch != epoch)
    return;
  entry->attempt->end.stage = AttemptEnd::Stage::kGone;
  absl::Status status = closed.status();
  if (status.ok()) {
    closed->not_started = entry->attempt->not_started;
    closed->moves = core_.board.MovesOff(*entry);
    closed->taken_bytes = TakenOfPromises(core_.board.States(), entry->record.job.device());
    status = Finish(*entry, *closed);
  }
  if (status.ok()) return;
  // The rows still say that the attempt is open, so a later tick tries again.
  entry->attempt->end.close_again = SinceBoot() + core_.settings.limits.close_again;
  spdlog::error("job {}: closing attempt {}: {}", id, epoch, status.message());
}

absl::Status Closing::Finish(Entry& entry, const ClosedAttempt& closed) {
  AttemptRecord attempt = entry.attempt->record;
  JobRecord changed = entry.record;
  Change change{.attempt = &attempt, .release = true};
  RETURN_IF_ERROR(
      Conclude(closed, {.now_us = WallMicros(), .jitter = Jitter()}, changed, attempt, change));
  RETURN_IF_ERROR(core_.Save(entry, std::move(changed), std::move(change), Urgency::kMustLand));
  if (closed.outcome.result.has_progress())
    core_.attempts.Count(entry, closed.outcome.result.progress());
  core_.metrics.Attempt(NameForMetrics(entry.state(), closed));
  core_.metrics.Prediction(entry.attempt->record.plan.peak_bytes(),
                           closed.outcome.result.measured_peak_bytes());
  core_.metrics.ForgetJob(entry.id());
  core_.ledger.Release(entry.id());
  core_.pool.Post(
      [state_dir = core_.settings.launcher.state_dir] { SweepSharedWeights(state_dir); });
  core_.attempts.CloseLink(entry);
  entry.attempt.reset();
  if (ReadyJob* ready = entry.readiness.job()) {
    if (closed.checkpoints.ok()) ready->resume = closed.checkpoints->newest;
    // Its parent's is to be looked at again.
    if (!ready->resume && entry.record.job.extends_step() > 0) entry.readiness.Reset();
  }
  entry.retry_cause = entry.record.job.reason();
  core_.needs_round = true;
  core_.board.Show();
  if (IsTerminal(entry.state())) {
    core_.Drop(entry.id());
  } else if (entry.state() == v1::Job::QUEUED) {
    if (entry.ready() == nullptr) core_.readying.Await(entry);
    core_.admission.Enqueue(entry);
  }
  return absl::OkStatus();
}

}  // namespace snug::server
