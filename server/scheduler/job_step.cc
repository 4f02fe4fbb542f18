#include "server/scheduler/job_step.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/job/errors.h"
#include "server/node/framing.h"
#include "server/scheduler/interference.h"
#include "server/scheduler/job_update.h"
#include "server/scheduler/reports.h"
#include "server/scheduler/step_correction.h"

namespace snug::server {
namespace {

using v1::Job;

constexpr const char* kKeep = "cancel and keep";
constexpr const char* kItsWorkerExports = "its worker exports what there is";
constexpr const char* kWaitsToExport = "waits for a worker that exports what there is";
constexpr const char* kIsBeingCancelled = "is being cancelled";
constexpr const char* kWaitsToBePlaced = "waits to be placed";
constexpr int kMaxShownChanges = 16;  // Of plans, in a job that is squeezed again and again.
constexpr size_t kFrameRest = 64;     // Of a command, beside the order.

// Writes the plan that an attempt runs under into its job, and what that promises of memory and
// time: `bytes` are reserved on the device for it. How much was seen under another one is gone.
void PutInForce(const v1::Plan& plan, int64_t bytes, Job& job) {
  *job.mutable_plan() = plan;
  SetStepTime(StepRatioOf(job), job);
  v1::JobMemory& memory = *job.mutable_memory();
  memory.set_budget_bytes(bytes);
  memory.set_shared_bytes(plan.shared().bytes());
  memory.set_reserved_bytes(bytes - plan.shared().bytes());
  memory.set_predicted_peak_bytes(plan.peak_bytes());
  memory.set_host_bytes(plan.host_bytes());
  memory.clear_looks();
  memory.clear_uncounted_bytes();
  memory.clear_warning();
  memory.set_plan(plan.name());
  memory.set_fidelity(LowerEnumWord(plan.fidelity()));
  memory.clear_kinds();
  for (const v1::KindShare& kind : plan.kinds())
    (*memory.mutable_kinds())[kind.kind()] = kind.share();
}

// Adds the change that the worker has confirmed to those that the job shows.
void NoteChange(const v1::WorkerEvent::PlanChanged& answer, const v1::PlanOrder& order,
                const std::string& from, v1::PlanChanges& changes) {
  changes.set_count(changes.count() + 1);
  while (changes.changes_size() >= kMaxShownChanges)
    changes.mutable_changes()->DeleteSubrange(0, 1);
  v1::PlanChange& change = *changes.add_changes();
  change.set_global_step(answer.global_step());
  change.set_from(from);
  change.set_to(order.plan().name());
  change.set_bytes(order.bytes());
  change.set_measured_bytes(answer.current_bytes());
  change.set_reason(order.reason());
}

// One event at work on what its step comes to.
class Stepping {
 public:
  Stepping(const JobRows& rows, const Moment& moment, JobStep& step)
      : rows_(rows), moment_(moment), step_(step), job_(step.job) {
    job_ = rows.job;
  }

  absl::Status operator()(const CancelAsked& asked);
  absl::Status operator()(const PauseAsked& asked);
  absl::Status operator()(const ResumeAsked& asked);
  absl::Status operator()(const UpdateAsked& asked);
  absl::Status operator()(const MadeReady& made);
  absl::Status operator()(const Refused& refused);
  absl::Status operator()(const HeldBack& held);
  absl::Status operator()(const Placed& placed);
  absl::Status operator()(const Spawned& spawned);
  absl::Status operator()(const Heard& heard);
  absl::Status operator()(const FellSilent& fell);
  absl::Status operator()(const Displaced& displaced);
  absl::Status operator()(const LimitAsked& asked);
  absl::Status operator()(const PlanOrdered& ordered);
  absl::Status operator()(const PlanAnswered& answered);
  absl::Status operator()(const AttemptClosed& ended);

 private:
  absl::Status Move(JobState to, std::string reason) {
    return MoveJob(job_, to, std::move(reason), moment_.now_us, step_.rest);
  }
  absl::Status Nothing() {
    step_.nothing = true;
    return absl::OkStatus();
  }
  absl::Status CheckAttempt() const {
    if (rows_.attempt != nullptr) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("job ", job_.key(), " has no open attempt"));
  }
  // The open attempt, which is changed.
  absl::StatusOr<AttemptRecord*> Attempt() {
    RETURN_IF_ERROR(CheckAttempt());
    return &step_.attempt.emplace(*rows_.attempt);
  }
  void Reserve(const AttemptRecord& attempt, int64_t bytes) {
    step_.rest.reserve = Reservation{attempt.device, job_.key(), attempt.epoch, bytes};
  }
  absl::Status CancelAtOnce();
  absl::Status CancelAndKeep();
  absl::Status GoOnToKeep();

  const JobRows& rows_;
  const Moment& moment_;
  JobStep& step_;
  JobRecord& job_;
};

absl::Status Stepping::CancelAtOnce() {
  job_.job.set_keep(false);  // An export that is under way is not waited for any more.
  job_.job.clear_pause_cause();
  if (!HasAttempt(job_.state())) return Move(Job::STATE_CANCELLED, "cancelled");
  if (job_.state() != Job::STATE_CANCELLING) return Move(Job::STATE_CANCELLING, kIsBeingCancelled);
  job_.job.set_reason(kIsBeingCancelled);
  return absl::OkStatus();
}

// Its worker has as long for the export as any has at the end of a run.
absl::Status Stepping::CancelAndKeep() {
  const JobState state = job_.state();
  if (state == Job::STATE_CANCELLING && job_.job.keep()) {
    step_.actions.stop_worker = true;  // Once more: it may not have heard.
    return absl::OkStatus();
  }
  if (!HasAttempt(state)) return HasTrained(job_.job) ? GoOnToKeep() : CancelAtOnce();
  if (state != Job::STATE_STARTING && state != Job::STATE_RUNNING)
    return WrongState(job_.job.id(), kKeep, absl::StrCat(NameOf(state), ", and does not train"));
  if (job_.job.displacement().pending()) {  // Its worker obeys one order to end, and has that.
    if (job_.job.keep()) return Nothing();
    job_.job.set_keep(true);
    job_.job.set_reason(LeavingReason(job_.job));
    return absl::OkStatus();
  }
  job_.job.set_keep(true);
  step_.actions.stop_worker = true;
  return Move(Job::STATE_CANCELLING, kItsWorkerExports);
}

// It has trained and has no worker. Its next one exports what the newest checkpoint has, and is
// told so when it says Hello; one without a checkpoint ends with nothing.
absl::Status Stepping::GoOnToKeep() {
  if (job_.job.keep()) return Nothing();
  job_.job.set_keep(true);
  if (job_.state() == Job::STATE_PAUSED) RETURN_IF_ERROR((*this)(ResumeAsked()));
  job_.job.set_reason(kWaitsToExport);
  return absl::OkStatus();
}

absl::Status Stepping::operator()(const CancelAsked& asked) {
  const JobState state = job_.state();
  if (state == Job::STATE_CANCELLED && (job_.job.keep() || !asked.keep)) return Nothing();
  if (IsTerminal(state))
    return WrongState(job_.job.id(), asked.keep ? kKeep : "cancel", NameOf(state));
  return asked.keep ? CancelAndKeep() : CancelAtOnce();
}

// A worker that is not linked now is told when it says Hello; one that hangs is ended like any.
absl::Status Stepping::operator()(const PauseAsked& asked) {
  const JobState state = job_.state();
  if (state == Job::STATE_PAUSING || state == Job::STATE_PAUSED) return Nothing();
  if (state == Job::STATE_CANCELLING || IsTerminal(state))
    return WrongState(job_.job.id(), "pause", NameOf(state));
  const bool runs = HasAttempt(state);
  job_.job.set_keep(false);
  job_.job.set_pause_cause(asked.cause);
  step_.actions.stop_worker = runs;
  step_.actions.abandon_ready = !runs;
  return runs ? Move(Job::STATE_PAUSING, "its worker saves a checkpoint")
              : Move(Job::STATE_PAUSED, "paused");
}

absl::Status Stepping::operator()(const ResumeAsked&) {
  if (job_.state() != Job::STATE_PAUSED)
    return WrongState(job_.job.id(), "resume", NameOf(job_.state()));
  job_.not_before_us = 0;
  job_.job.clear_pause_cause();
  step_.actions.make_ready = true;
  return job_.train_data.empty() ? Move(Job::STATE_PREPARING, "waits to be prepared")
                                 : Move(Job::STATE_QUEUED, kWaitsToBePlaced);
}

absl::Status Stepping::operator()(const UpdateAsked& asked) {
  step_.rest.labels = true;
  step_.urgency = Urgency::kRefusable;
  RETURN_IF_ERROR(UpdateJob(asked.request, job_.job));
  step_.actions.ask_round = job_.job.priority() != rows_.job.job.priority();
  return absl::OkStatus();
}

// One that is queued was prepared before, and was made ready anew: after a restart, or because its
// checkpoints had to be looked at again.
absl::Status Stepping::operator()(const MadeReady& made) {
  step_.rest.plans = made.plans;
  if (job_.state() == Job::STATE_QUEUED) {  // What its plans are of is stored with them.
    *job_.job.mutable_spec()->mutable_memory() = made.ready.checked.spec.memory();
    return absl::OkStatus();
  }
  std::string name = std::move(*job_.job.mutable_spec()->mutable_display_name());
  *job_.job.mutable_spec() = made.ready.checked.spec;
  job_.job.mutable_spec()->set_display_name(std::move(name));  // `ready` may be others', too.
  job_.train_data = made.ready.folders.train;
  job_.eval_data = made.ready.folders.eval;
  *job_.job.mutable_dataset() = made.ready.summary;
  return Move(Job::STATE_QUEUED, kWaitsToBePlaced);
}

// A job that has trained is not begun anew, nor lost: its files may be put back.
absl::Status Stepping::operator()(const Refused& refused) {
  if (job_.job.epoch() > 0 && refused.error.reason() == kCheckpointsDamaged)
    return (*this)(HeldBack{DamagedReason(refused.error.message())});
  if (job_.job.keep())
    return Move(Job::STATE_CANCELLED,
                absl::StrCat("cancelled without an output: ", refused.error.message()));
  *job_.job.mutable_error() = refused.error;
  return Move(Job::STATE_FAILED, refused.error.message());
}

absl::Status Stepping::operator()(const HeldBack& held) {
  job_.job.set_keep(false);
  step_.actions.abandon_ready = true;
  return Move(Job::STATE_PAUSED, held.reason);
}

// The attempt is an intent: it is stored before anything is started.
absl::Status Stepping::operator()(const Placed& placed) {
  Job& job = job_.job;
  AttemptRecord& attempt = step_.attempt.emplace();
  attempt.job = job_.key();
  attempt.epoch = job.epoch() + 1;
  attempt.nonce = placed.nonce;
  attempt.device = placed.device_id;
  attempt.boot_id = placed.boot_id;
  attempt.plan = placed.plan;
  attempt.cap_bytes = placed.bytes;
  attempt.created_us = moment_.now_us;
  if (placed.resume) {
    attempt.resume_from = placed.resume->dir;
    attempt.resume_step = placed.resume->step;
  }
  job.set_epoch(attempt.epoch);
  job.set_device(placed.device);
  job.mutable_plan_changes()->set_most_bytes(placed.most_bytes);
  job.clear_step_time();  // Steps of other attempts say nothing of this one's.
  PutInForce(placed.plan, placed.bytes, job);
  job_.last_resume_step = attempt.resume_step;
  job_.not_before_us = 0;
  Reserve(attempt, placed.bytes);
  step_.urgency = Urgency::kRefusable;
  step_.actions.start_worker = true;
  return Move(Job::STATE_STARTING, "its worker is being started");
}

absl::Status Stepping::operator()(const Spawned& spawned) {
  ASSIGN_OR_RETURN(AttemptRecord* const attempt, Attempt());
  step_.same_job = true;
  attempt->shim_pid = spawned.shim_pid;
  return attempt->TransitionTo(AttemptState::kIntent, AttemptState::kSpawned);
}

absl::Status Stepping::operator()(const Heard& heard) {
  ASSIGN_OR_RETURN(AttemptRecord* const attempt, Attempt());
  if (attempt->state != AttemptState::kLive)
    RETURN_IF_ERROR(attempt->TransitionTo(attempt->state, AttemptState::kLive));
  if (heard.pid != 0) job_.job.set_worker_pid(heard.pid);
  if (job_.state() == Job::STATE_STARTING && job_.job.keep())
    return Move(Job::STATE_CANCELLING, kItsWorkerExports);
  const char* reason = heard.reported ? kIsTraining : "its worker is loading the model";
  if (job_.state() == Job::STATE_STARTING) return Move(Job::STATE_RUNNING, reason);
  if (job_.state() == Job::STATE_RUNNING) job_.job.set_reason(reason);
  return absl::OkStatus();
}

absl::Status Stepping::operator()(const FellSilent& fell) {
  ASSIGN_OR_RETURN(AttemptRecord* const attempt, Attempt());
  job_.job.set_reason(
      absl::StrCat("its worker has been silent for ", absl::ToInt64Seconds(fell.silent), " s"));
  return attempt->TransitionTo(AttemptState::kLive, AttemptState::kUnreachable);
}

// What becomes of the job then is decided when its attempt has ended.
absl::Status Stepping::operator()(const Displaced& displaced) {
  RETURN_IF_ERROR(CheckAttempt());
  if (job_.state() != Job::STATE_RUNNING)
    return absl::InternalError(
        absl::StrCat("job ", job_.key(), " is to leave its device, and is ", NameOf(job_.state())));
  v1::Displacement& displacement = *job_.job.mutable_displacement();
  if (displacement.pending()) return Nothing();
  displacement.set_count(displacement.count() + 1);
  displacement.set_reason(displaced.reason);
  displacement.set_pending(true);
  job_.job.set_reason(LeavingReason(job_.job));
  step_.urgency = Urgency::kRefusable;
  step_.actions.stop_worker = true;
  return absl::OkStatus();
}

absl::Status Stepping::operator()(const LimitAsked& asked) {
  RETURN_IF_ERROR(CheckAttempt());
  step_.urgency = Urgency::kRefusable;
  v1::PlanChanges& changes = *job_.job.mutable_plan_changes();
  if (asked.bytes == 0)
    changes.clear_limit_bytes();
  else
    changes.set_limit_bytes(asked.bytes);
  return absl::OkStatus();
}

// That the prediction was too little is remembered: from now on more is reserved for each of the
// job's plans.
absl::Status Stepping::operator()(const PlanOrdered& ordered) {
  RETURN_IF_ERROR(CheckAttempt());
  v1::PlanChanges& changes = *job_.job.mutable_plan_changes();
  if (changes.has_pending())
    return absl::InternalError(absl::StrCat("job ", job_.key(), " has an order under way"));
  changes.set_orders(changes.orders() + 1);
  if (ordered.limit_bytes) changes.set_limit_bytes(*ordered.limit_bytes);
  if (ordered.step_did_not_fit) job_.oom_failures = std::max(job_.oom_failures, 1);
  v1::PlanOrder& order = *changes.mutable_pending();
  order.set_number(changes.orders());
  *order.mutable_plan() = ordered.plan;
  order.set_bytes(ordered.bytes);
  order.set_reason(ordered.reason);
  if (order.ByteSizeLong() + kFrameRest > kMaxFrameBytes)
    return absl::ResourceExhaustedError(
        absl::StrCat("plan \"", order.plan().name(), "\" is too long for the link to its worker"));
  Reserve(*rows_.attempt, ordered.BytesBeside(rows_.attempt->cap_bytes));
  step_.urgency = Urgency::kRefusable;
  step_.actions.order_plan = true;
  return absl::OkStatus();
}

absl::Status Stepping::operator()(const PlanAnswered& answered) {
  ASSIGN_OR_RETURN(AttemptRecord* const attempt, Attempt());
  v1::PlanChanges& changes = *job_.job.mutable_plan_changes();
  if (!changes.has_pending())
    return absl::InternalError(absl::StrCat("job ", job_.key(), " has no order under way"));
  const v1::PlanOrder order = changes.pending();
  changes.clear_pending();
  if (answered.answer.refusal().empty()) {
    NoteChange(answered.answer, order, attempt->plan.name(), changes);
    attempt->plan = order.plan();
    attempt->cap_bytes = order.bytes();
    PutInForce(order.plan(), order.bytes(), job_.job);
    job_.job.mutable_memory()->set_measured_peak_bytes(answered.answer.current_bytes());
  } else {
    step_.actions.keep_plan = true;
  }
  Reserve(*attempt, attempt->cap_bytes);
  step_.actions.shrink_promise = true;
  return absl::OkStatus();
}

absl::Status Stepping::operator()(const AttemptClosed& ended) {
  ASSIGN_OR_RETURN(AttemptRecord* const attempt, Attempt());
  step_.rest.release = true;
  RETURN_IF_ERROR(Conclude(ended.closed, moment_, job_, *attempt, step_.rest));
  step_.actions.drop_attempt = true;
  step_.actions.make_ready = job_.state() == Job::STATE_QUEUED;
  return absl::OkStatus();
}

}  // namespace

Change JobStep::ToChange() const {
  Change change = rest;
  if (!same_job) change.job = &job;
  if (attempt) change.attempt = &*attempt;
  return change;
}

absl::StatusOr<JobStep> StepJob(const JobRows& rows, const JobEvent& event, const Moment& moment) {
  JobStep step;
  RETURN_IF_ERROR(std::visit(Stepping(rows, moment, step), event));
  if (step.nothing) return JobStep{.nothing = true};
  step.actions.drop_job = IsTerminal(step.job.state()) && !IsTerminal(rows.job.state());
  return step;
}

}  // namespace snug::server
