// From queued to a started attempt: the policy decides, here it is made durable and then done.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/node/attempt_files.h"
#include "server/node/descriptors.h"
#include "server/node/shared_weights.h"
#include "server/place/policy.h"
#include "server/plan/planner.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/device_plans.h"
#include "server/scheduler/plan_changes.h"
#include "server/scheduler/plan_in_force.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {
namespace {

QueuedJob QueuedAs(const Entry& entry, double margin, const TenantUse& tenants) {
  QueuedJob job{.id = entry.id(),
                .priority = entry.record.job.priority(),
                .order = entry.record.order,
                .not_before_us = entry.record.not_before_us,
                .retry_cause = entry.retry_cause,
                .budget_bytes = BudgetBytes(entry.record.job.spec()),
                .judgement = entry.ready() ? Judgement::kJudged : Judgement::kAwaited};
  tenants.LimitToShare(entry.record.job.owner(), job);
  if (entry.readiness.IsHeld(SinceBoot())) job.judgement = Judgement::kHeld;
  if (entry.ready() == nullptr) return job;
  for (const auto& [device, plans] : *entry.ready()->plans) {
    for (const v1::Plan& plan : plans) {
      job.plans[device].emplace_back(CapOf(plan, entry.record.oom_failures, margin), plan.threads(),
                                     plan.host_bytes());
      job.shared[device] = SharedBy(plan);  // The same in all.
    }
  }
  return job;
}

v1::Assignment AssignmentOf(const Entry& entry, const Device& device,
                            const std::string& state_dir) {
  const AttemptRecord& attempt = entry.attempt->record;
  const CheckedJob& checked = entry.ready()->checked;
  v1::Assignment assignment;
  assignment.set_job_id(entry.id());
  assignment.set_epoch(attempt.epoch);
  assignment.set_nonce(attempt.nonce);
  assignment.set_link_socket(state_dir + "/link.sock");
  *assignment.mutable_spec() = checked.spec;
  assignment.mutable_spec()->set_model(checked.model_dir);
  *assignment.mutable_plan() = attempt.plan;
  assignment.set_device(device.name);
  assignment.set_context_bytes(device.context_bytes);
  assignment.set_products(device.products);
  assignment.set_cap_bytes(attempt.cap_bytes);
  assignment.set_train_data(entry.record.train_data);
  assignment.set_eval_data(entry.record.eval_data);
  assignment.set_attempt_dir(AttemptDir(state_dir, entry.id(), attempt.epoch));
  assignment.set_checkpoints_dir(CheckpointsDir(state_dir, entry.id()));
  assignment.set_resume_from(attempt.resume_from);
  const v1::Job& job = entry.record.job;
  if (job.extends_step() > 0) assignment.set_parent_job(job.parent_job());
  assignment.set_begin_step(job.extends_step());
  // The attempt that wrote the checkpoint has a line for each step up to it.
  if (entry.ready()->resume && entry.ready()->resume->job == entry.id())
    assignment.set_previous_metrics(
        AttemptDir(state_dir, entry.id(), entry.ready()->resume->epoch) + "/metrics.jsonl");
  assignment.set_base_model_name(checked.model_dir);
  assignment.set_prompts(entry.ready()->folders.prompts);
  assignment.set_shared_weights_dir(SharedWeightsDir(state_dir));
  return assignment;
}

}  // namespace

// What it needs is known. A job that fits nowhere is refused now, not when its turn comes.
void Scheduler::Judge(Entry& entry) {
  changed_ = true;
  if (!CouldEverRun(QueuedAs(entry, settings_.limits.oom_margin, tenant_use_), ledger_.Snapshot()))
    return RefuseJob(entry);
  Enqueue(entry);
}

void Scheduler::Enqueue(const Entry& entry) {
  waiting_->Put(QueuedAs(entry, settings_.limits.oom_margin, tenant_use_));
  changed_ = true;
}

void Scheduler::Schedule() {
  const absl::Duration now = SinceBoot();
  const bool retry = times_.retry_at != absl::ZeroDuration() && now >= times_.retry_at;
  const bool time_has_come = times_.time_comes_us != 0 && WallMicros() >= times_.time_comes_us;
  if (!(changed_ || retry || time_has_come) || AwaitsLook()) return;
  if (now < times_.last_round + settings_.limits.between_rounds) return;
  times_.last_round = now;
  changed_ = false;
  times_.retry_at = absl::ZeroDuration();
  const Decision decision = waiting_->Round(DeviceStates(), WallMicros());
  metrics_.Round(SinceBoot() - now);
  times_.time_comes_us = decision.next_us;
  for (const std::string& id : decision.infeasible)
    if (Entry* entry = Find(id)) RefuseJob(*entry);
  for (const Placement& placement : decision.placements) {
    Entry& entry = *Find(placement.job);
    const absl::Status admitted = Admit(entry, placement);
    if (admitted.ok())
      Launch(entry);
    else
      ScheduleAgain(entry, admitted);
  }
  PlanChanger(*this).AfterRound(decision.head);
}

// It fits on no device, however empty.
void Scheduler::RefuseJob(Entry& entry) {
  const DeviceState largest = LargestOf(ledger_.Snapshot());
  const std::vector<v1::Plan>& plans = entry.ready()->plans->at(largest.name);
  const int64_t budget = BudgetBytes(entry.record.job.spec());
  const int64_t limit = std::min(largest.capacity_bytes, budget);
  const int64_t least = plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
  const int64_t share = tenant_use_.ShareOf(entry.record.job.owner());
  const std::string why = FirstThatFits(plans, limit) >= 0
                              ? HostRefusalOf(plans, limit, largest.host_capacity_bytes)
                              : RefusalOf(plans, largest.name, largest.capacity_bytes, budget);
  const absl::Status refusal = least > share && share < limit
                                   ? QuotaExceeded({.tenant = TenantOf(entry.record.job.owner()),
                                                    .field = "quota.device_bytes",
                                                    .limit = share,
                                                    .value = least})
                                   : PlanInfeasible(why, least);
  const absl::Status failed = FailJob(entry, ToJobError(refusal));
  if (!failed.ok()) ScheduleAgain(entry, failed);
}

// A decision that could not be stored (a full disk): nothing else would bring it up again.
void Scheduler::ScheduleAgain(Entry& entry, const absl::Status& why) {
  spdlog::error("job {}: {}", entry.id(), why.message());
  times_.retry_at = SinceBoot() + settings_.limits.schedule_again;
  entry.record.job.set_reason(absl::StrCat("waits: ", why.message()));
  Show(entry);
}

absl::Status Scheduler::Admit(Entry& entry, const Placement& placement) {
  const v1::Plan& plan =
      entry.ready()->plans->at(placement.device)[static_cast<size_t>(placement.plan)];
  RETURN_IF_ERROR(ledger_.Reserve(placement.device, entry.id(), PromiseOf(plan, placement.bytes)));
  const std::string& device = ledger_.Find(placement.device)->id();
  JobRecord changed = entry.record;
  v1::Job& job = changed.job;
  AttemptRecord attempt{.job = entry.id(),
                        .epoch = job.epoch() + 1,
                        .nonce = RandomHex(32),
                        .device = device,
                        .boot_id = BootId(),
                        .plan = plan,
                        .cap_bytes = placement.bytes,
                        .created_us = WallMicros()};
  if (entry.ready()->resume) {
    attempt.resume_from = entry.ready()->resume->dir;
    attempt.resume_step = entry.ready()->resume->step;
  }
  job.set_epoch(attempt.epoch);
  job.set_device(placement.device);
  PutInForce(plan, placement.bytes, job);
  changed.last_resume_step = attempt.resume_step;
  changed.not_before_us = 0;
  Change change{.attempt = &attempt,
                .reserve = Reservation{device, entry.id(), attempt.epoch, placement.bytes}};
  absl::Status status =
      MoveJob(changed, v1::Job::STARTING, "its worker is being started", WallMicros(), change);
  entry.attempt = std::make_unique<LiveAttempt>();
  if (status.ok()) status = Save(entry, std::move(changed), std::move(change), Urgency::kRefusable);
  if (!status.ok()) {
    entry.attempt.reset();
    ledger_.Release(entry.id());
    return status;
  }
  entry.attempt->started = entry.attempt->last_heard = SinceBoot();
  entry.attempt->shim = std::make_unique<ShimWatch>(
      AttemptDir(settings_.launcher.state_dir, entry.id(), entry.attempt->record.epoch));
  attended_.insert(entry.id());
  ShowDevices();
  return absl::OkStatus();
}

// The attempt's row stands. Whatever happens from here on, the lock and the exit record tell it.
void Scheduler::Launch(Entry& entry) {
  const Device& device = *ledger_.Find(entry.attempt->record.device);  // It was placed there.
  const DescriptorLoan loan;
  absl::StatusOr<pid_t> shim = LaunchAttempt(
      settings_.launcher, device, AssignmentOf(entry, device, settings_.launcher.state_dir));
  if (!shim.ok()) {
    spdlog::error("job {}: cannot start a worker: {}", entry.id(), shim.status().message());
    entry.attempt->record.exit = std::string(shim.status().message());
    entry.attempt->not_started = shim.status();
    return;  // The next tick finds its lock free and no exit record.
  }
  entry.attempt->shim->Follow(*shim, /*just_started=*/true);
  AttemptRecord attempt = entry.attempt->record;
  attempt.shim_pid = *shim;
  absl::Status status = attempt.TransitionTo(AttemptState::kIntent, AttemptState::kSpawned);
  if (status.ok()) status = store_.Commit({.attempt = &attempt});
  // If this is not stored, Hello or the exit record will say so.
  if (!status.ok()) spdlog::error("job {}: {}", entry.id(), status.message());
  entry.attempt->record = std::move(attempt);
  entry.readiness.job()->resume.reset();
  const AttemptRecord& started = entry.attempt->record;
  spdlog::info("job {}: attempt {} under plan \"{}\", {} bytes and {} threads on {}", entry.id(),
               started.epoch, started.plan.name(), started.cap_bytes, started.plan.threads(),
               device.name);
}

}  // namespace snug::server
