#include "server/scheduler/closing.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/job_origins.h"
#include "server/artifact/output.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/transient.h"
#include "server/node/descriptors.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/core.h"
#include "server/scheduler/reports.h"

namespace snug::server {
namespace {

constexpr const char* kUndying = "PROCESS_UNDYING";

// What looking at an attempt that has ended needs, copied: its entry may be gone then.
struct Ended {
  JobRecord job;
  Node::EndedAttempt attempt;
  std::string attempt_dir;
  std::string checkpoints_dir;
};

absl::StatusOr<ArtifactRecord> OutputOf(const Ended& ended, const v1::WorkerResult& result,
                                        const std::string& state_dir, const JobIndex& index,
                                        Inspector& inspector) {
  const v1::JobSpec& spec = ended.job.job.spec();
  const Principal owner = OwnerOf(ended.job.job);
  ASSIGN_OR_RETURN(const CheckedJob checked,
                   inspector.Check(spec, JobOrigins(index, state_dir, owner),
                                   {.who = owner, .inputs = InputFiles::kDone}));
  ASSIGN_OR_RETURN(ArtifactRecord artifact,
                   VerifyOutput(ended.attempt_dir, result, *checked.program,
                                spec.method() == v1::JobSpec::METHOD_LORA));
  artifact.job = ended.attempt.identity.job;
  artifact.epoch = ended.attempt.identity.epoch;
  return artifact;
}

absl::StatusOr<ClosedAttempt> LookAt(const Ended& ended, Node& node, const std::string& state_dir,
                                     const JobIndex& index, Inspector& inspector) {
  const absl::StatusOr<AttemptRemains> remains = node.Collect(ended.attempt);
  if (absl::IsDeadlineExceeded(remains.status())) return WithReason(remains.status(), kUndying);
  RETURN_IF_ERROR(remains.status());
  const DescriptorLoan loan;
  // What cannot be read now is no verdict: a success would be taken for a loss.
  for (const absl::Status& read : {remains->exit.status(), remains->result.status()})
    if (!read.ok() && !absl::IsDataLoss(read)) return read;
  ClosedAttempt closed;
  closed.outcome = Judge(remains->exit, remains->result);
  DropAbsurd(closed.outcome.result, MaxSteps(ended.job.job));
  if (closed.outcome.ending == Ending::kSucceeded) {
    closed.output = OutputOf(ended, closed.outcome.result, state_dir, index, inspector);
    if (IsTransient(closed.output.status())) return closed.output.status();
  } else {
    closed.checkpoints = FindNewest(ended.attempt.identity.job, ended.checkpoints_dir);
    if (IsTransient(closed.checkpoints.status())) return closed.checkpoints.status();
  }
  return closed;
}

// Of what was being read at two ends of the daemon, which may be what ends it, nothing is read
// again: the job is paused, as one whose checkpoints are damaged.
ClosedAttempt Unread(int epoch) {
  ClosedAttempt closed;
  closed.checkpoints = absl::DataLossError(absl::StrCat(
      "the daemon ended ", kMaxEndsInHand, " times while it read what attempt ", epoch, " left"));
  return closed;
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
  const std::string& state_dir = core_.settings.state_dir;
  Ended ended{.job = entry.record,
              .attempt = {.identity = {.instance = core_.store.instance_uuid(),
                                       .job = attempt.job,
                                       .epoch = attempt.epoch,
                                       .nonce = attempt.nonce},
                          .boot_id = attempt.boot_id,
                          .shim = attempt.shim_pid},
              .attempt_dir = AttemptDir(state_dir, attempt.job, attempt.epoch),
              .checkpoints_dir = CheckpointsDir(state_dir, attempt.job)};
  const bool suspect = core_.in_hand.IsSuspect(attempt.job);
  const bool begun = pool_.Post([this, suspect, ended = std::move(ended)] {
    const InHand::Hold hold(core_.in_hand, {ended.attempt.identity.job});
    auto closed = std::make_shared<absl::StatusOr<ClosedAttempt>>(
        suspect ? Unread(ended.attempt.identity.epoch)
                : LookAt(ended, *core_.settings.node, core_.settings.state_dir, core_.index,
                         core_.settings.inspector));
    core_.Post([this, attempt = ended.attempt.identity, closed] {
      OnLookedAt(attempt.job, attempt.epoch, std::move(*closed));
    });
  });
  if (begun) entry.attempt->end.stage = AttemptEnd::Stage::kClosing;
}

void Closing::OnLookedAt(const std::string& key, int epoch, absl::StatusOr<ClosedAttempt> closed) {
  Entry* entry = core_.Find(key);
  if (entry == nullptr || entry->attempt == nullptr || entry->attempt->record.epoch != epoch)
    return;
  core_.in_hand.Forget(key);
  entry->attempt->end.stage = AttemptEnd::Stage::kGone;
  absl::Status status = closed.status();
  if (status.ok() || ReasonOf(status) == kUndying) ShowUndying(*entry, !status.ok());
  if (status.ok()) {
    closed->not_started = entry->attempt->not_started;
    closed->moves = core_.board.WhyItMoves(*entry);
    closed->taken_bytes = TakenOfPromises(core_.board.States(), entry->record.job.device());
    status = Finish(*entry, *closed);
  }
  if (status.ok()) return;
  // The rows still say that the attempt is open, so a later tick tries again.
  entry->attempt->end.close_again = SinceBoot() + core_.settings.limits.close_again;
  spdlog::error("job {}: closing attempt {}: {}", key, epoch, status.message());
}

// Such a process waits in the kernel, for a disk or a driver. A GPU takes no new jobs meanwhile.
void Closing::ShowUndying(Entry& entry, bool undying) {
  if (std::exchange(entry.attempt->undying, undying) == undying) return;
  core_.needs_round = true;
  core_.board.Show();
  if (!undying) return;
  entry.record.job.set_reason(
      absl::StrCat("a process of attempt ", entry.attempt->record.epoch,
                   " does not end, though it was killed: its bytes stay reserved"));
  core_.Show(entry);
}

// What is known of the job's checkpoints, and how far it came, holds whether or not the end can be
// stored now.
absl::Status Closing::Finish(Entry& entry, const ClosedAttempt& closed) {
  const v1::WorkerResult& result = closed.outcome.result;
  if (entry.ready() != nullptr) {
    if (closed.checkpoints.ok()) entry.readiness.GoOnFrom(closed.checkpoints->newest);
    // Its parent's is to be looked at again.
    const bool parents = !entry.readiness.resume() && entry.record.job.extends_step() > 0;
    if (parents || !closed.checkpoints.ok()) entry.readiness.Reset();
  }
  if (result.has_progress()) core_.attempts.Count(entry, result.progress());
  const int64_t predicted = entry.attempt->record.plan.peak_bytes();
  const std::string device = entry.record.job.device();
  const double step_ratio = StepRatioOf(entry.record.job);
  ASSIGN_OR_RETURN(const JobState state, core_.Apply(entry, AttemptClosed{closed}));
  core_.metrics.Attempt(NameForMetrics(state, closed));
  core_.metrics.Prediction(predicted, result.measured_peak_bytes());
  core_.metrics.StepPrediction(device, step_ratio);
  core_.pool.Post([&node = *core_.settings.node] { node.SweepSharedWeights(); });
  return absl::OkStatus();
}

}  // namespace snug::server
