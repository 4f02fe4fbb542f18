#include "server/scheduler/admission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/node/attempt_files.h"
#include "server/place/policy.h"
#include "server/plan/planner.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/core.h"
#include "server/scheduler/device_plans.h"
#include "server/scheduler/plan_changes.h"
#include "worker/program/files/base_model.h"

namespace snug::server {
namespace {

QueuedJob QueuedAs(const Entry& entry, double margin, const TenantUse& tenants) {
  QueuedJob job{.id = entry.key(),
                .priority = entry.record.job.priority(),
                .order = entry.record.order,
                .not_before_us = entry.record.not_before_us,
                .retry_cause = entry.retry_cause,
                .budget_bytes = BudgetBytes(entry.record.job.spec()),
                .judgement = entry.ready() ? Judgement::kJudged : Judgement::kAwaited,
                .no_steps = entry.record.job.keep()};
  tenants.LimitToShare(entry.record.job.owner(), job);
  if (entry.readiness.IsHeld(SinceBoot())) job.judgement = Judgement::kHeld;
  if (entry.ready() == nullptr) return job;
  for (const auto& [device, plans] : *entry.ready()->plans) {
    if (plans.empty()) continue;
    std::vector<PlanNeeds>& needs = job.plans[device];
    for (const v1::Plan& plan : plans)
      needs.emplace_back(CapOf(plan, entry.record.oom_failures, margin), plan.threads(),
                         plan.host_bytes());
    job.shared[device] = SharedBy(plans.front());  // The same in all.
  }
  return job;
}

v1::Assignment AssignmentOf(const Entry& entry, const Device& device,
                            const std::string& state_dir) {
  const AttemptRecord& attempt = entry.attempt->record;
  const CheckedJob& checked = entry.ready()->checked;
  v1::Assignment assignment;
  assignment.set_job_id(entry.key());
  assignment.set_epoch(attempt.epoch);
  assignment.set_nonce(attempt.nonce);
  *assignment.mutable_spec() = checked.spec;
  assignment.mutable_spec()->set_display_name(entry.record.job.spec().display_name());
  assignment.mutable_spec()->set_model(checked.model_dir);
  *assignment.mutable_plan() = attempt.plan;
  assignment.set_device(device.name);
  assignment.set_context_bytes(device.context_bytes);
  assignment.set_unseen_bytes(device.unseen_bytes);
  assignment.set_products(device.products);
  assignment.set_cap_bytes(attempt.cap_bytes);
  assignment.set_most_bytes(entry.record.job.plan_changes().most_bytes());
  assignment.set_train_data(entry.record.train_data);
  assignment.set_eval_data(entry.record.eval_data);
  assignment.set_attempt_dir(AttemptDir(state_dir, entry.key(), attempt.epoch));
  assignment.set_checkpoints_dir(CheckpointsDir(state_dir, entry.key()));
  assignment.set_resume_from(attempt.resume_from);
  const v1::Job& job = entry.record.job;
  assignment.set_begin_step(job.extends_step());
  for (const auto& [kind, drift] : job.drift())
    assignment.set_drift_step(std::max(assignment.drift_step(), drift.global_step()));
  // The attempt that wrote the checkpoint has a line for each step up to it.
  const std::optional<CheckpointRecord>& resume = entry.readiness.resume();
  if (resume && resume->job != entry.key()) assignment.set_parent_job(resume->job);
  if (resume && resume->job == entry.key())
    assignment.set_previous_metrics(AttemptDir(state_dir, entry.key(), resume->epoch) +
                                    "/metrics.jsonl");
  // What another job made lies in a folder that is the daemon's own.
  const std::optional<JobRef> made_here = ParseJobRef(checked.spec.model());
  assignment.set_base_model_name(made_here ? program::kJobsPrefix + TextOf(*made_here)
                                           : checked.model_dir);
  if (NamesJob(checked.spec.lora().init_adapter()))
    assignment.mutable_spec()->mutable_lora()->set_init_adapter(checked.adapter_dir);
  if (attempt.resume_from.empty()) assignment.set_start_from(checked.start_from);
  if (checked.opened != nullptr) *assignment.mutable_opened() = *checked.opened;
  assignment.set_prompts(entry.ready()->folders.prompts);
  return assignment;
}

}  // namespace

bool Admission::Fits(const Entry& entry) const {
  return CouldEverRun(QueuedAs(entry, core_.settings.limits.oom_margin, core_.tenant_use),
                      core_.ledger.Snapshot());
}

void Admission::Enqueue(const Entry& entry) {
  core_.waiting->Put(QueuedAs(entry, core_.settings.limits.oom_margin, core_.tenant_use));
  core_.needs_round = true;
}

absl::Duration Admission::NextRound() const {
  if (!core_.needs_round || core_.board.AwaitsLook()) return absl::InfiniteDuration();
  return last_round_ + core_.settings.limits.between_rounds;
}

void Admission::Schedule() {
  const absl::Duration now = SinceBoot();
  const bool retry = retry_at_ != absl::ZeroDuration() && now >= retry_at_;
  const bool time_has_come = time_comes_us_ != 0 && !IsAwaited(time_comes_us_, WallMicros());
  if (!(core_.needs_round || retry || time_has_come) || core_.board.AwaitsLook()) return;
  if (now < last_round_ + core_.settings.limits.between_rounds) return;
  last_round_ = now;
  core_.needs_round = false;
  retry_at_ = absl::ZeroDuration();
  const Decision decision = core_.waiting->Round(core_.board.States(), WallMicros());
  core_.metrics.Round(SinceBoot() - now);
  time_comes_us_ = decision.next_us;
  for (const std::string& id : decision.infeasible)
    if (Entry* entry = core_.Find(id)) Refuse(*entry);
  for (const Placement& placement : decision.placements) {
    Entry& entry = *core_.Find(placement.job);
    if (const absl::Status admitted = Admit(entry, placement); !admitted.ok())
      ScheduleAgain(entry, admitted);
  }
  PlanChanger(core_).AfterRound(decision.head);
}

void Admission::Refuse(Entry& entry) {
  const DeviceState largest = LargestOf(core_.ledger.Snapshot());
  const std::vector<v1::Plan>& plans = entry.ready()->plans->at(largest.name);
  const int64_t budget = BudgetBytes(entry.record.job.spec());
  const int64_t limit = std::min(largest.capacity_bytes, budget);
  const int64_t least = plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
  const int64_t share = core_.tenant_use.ShareOf(entry.record.job.owner());
  const std::string why = FirstThatFits(plans, limit) >= 0
                              ? HostRefusalOf(plans, limit, largest.host_capacity_bytes)
                              : RefusalOf(plans, largest.name, largest.capacity_bytes, budget);
  const absl::Status refusal = least > share && share < limit
                                   ? QuotaExceeded({.tenant = TenantOf(entry.record.job.owner()),
                                                    .field = "quota.device_bytes",
                                                    .limit = share,
                                                    .value = least})
                                   : PlanInfeasible(why, least);
  const absl::Status failed = core_.Apply(entry, Refused{ToJobError(refusal)}).status();
  if (!failed.ok()) ScheduleAgain(entry, failed);
}

// A decision that could not be stored (a full disk): nothing else would bring it up again.
void Admission::ScheduleAgain(Entry& entry, const absl::Status& why) {
  spdlog::error("job {}: {}", entry.key(), why.message());
  retry_at_ = SinceBoot() + core_.settings.limits.schedule_again;
  entry.record.job.set_reason(absl::StrCat("waits: ", why.message()));
  core_.Show(entry);
}

// The bytes are reserved in the ledger first, then the rows are stored, then the worker is started.
absl::Status Admission::Admit(Entry& entry, const Placement& placement) {
  const std::vector<v1::Plan>& plans = entry.ready()->plans->at(placement.device);
  const v1::Plan& plan = plans[static_cast<size_t>(placement.plan)];
  RETURN_IF_ERROR(
      core_.ledger.Reserve(placement.device, entry.key(), PromiseOf(plan, placement.bytes)));
  const Device& device = *core_.ledger.Find(placement.device);
  const int64_t most =
      std::min({MostOf(plans, plan, entry.record.oom_failures, core_.settings.limits.oom_margin),
                BudgetBytes(entry.record.job.spec()), device.capacity_bytes});
  const absl::Status placed =
      core_
          .Apply(entry, Placed{.device = placement.device,
                               .device_id = device.id(),
                               .plan = plan,
                               .bytes = placement.bytes,
                               .most_bytes = std::max(most, placement.bytes),
                               .resume = entry.readiness.resume(),
                               .nonce = RandomHex(32),
                               .boot_id = core_.settings.node->BootId()})
          .status();
  if (!placed.ok()) core_.ledger.Release(entry.key());
  return placed;
}

// The attempt's row stands. Whatever happens from here on, the lock and the exit record tell it.
void Admission::Launch(Entry& entry) {
  LiveAttempt& attempt = *entry.attempt;
  attempt.started = attempt.last_heard = SinceBoot();
  attempt.processes = core_.settings.node->Expect(entry.key(), attempt.record.epoch);
  core_.attended.insert(entry.key());
  core_.board.Show();
  const Device& device = *core_.ledger.Find(attempt.record.device);  // It was placed there.
  const absl::StatusOr<int64_t> shim =
      attempt.processes->Start(device, AssignmentOf(entry, device, core_.settings.state_dir));
  if (!shim.ok()) {
    spdlog::error("job {}: cannot start a worker: {}", entry.key(), shim.status().message());
    attempt.record.exit = std::string(shim.status().message());
    attempt.not_started = shim.status();
    return;  // The next tick finds its lock free and no exit record.
  }
  entry.readiness.GoOnFrom(std::nullopt);
  spdlog::info("job {}: attempt {} under plan \"{}\", {} bytes and {} threads on {}", entry.key(),
               attempt.record.epoch, attempt.record.plan.name(), attempt.record.cap_bytes,
               attempt.record.plan.threads(), device.name);
  absl::StatusOr<JobStep> spawned = core_.Decide(entry, Spawned{*shim});
  absl::Status stored = spawned.status();
  if (stored.ok()) stored = core_.store.Commit(spawned->ToChange(), spawned->urgency);
  // It is there all the same: Hello or the exit record will say so.
  if (!stored.ok()) spdlog::error("job {}: {}", entry.key(), stored.message());
  if (spawned.ok()) core_.OnStored(entry, *std::move(spawned));
}

}  // namespace snug::server
