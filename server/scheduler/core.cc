#include "server/scheduler/core.h"

#include <random>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/names.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

double Jitter() {
  static thread_local std::mt19937 generator{std::random_device{}()};
  return std::uniform_real_distribution<double>(-1.0, 1.0)(generator);
}

void CountMove(const Entry& entry, JobState before, Metrics& metrics) {
  metrics.CountJobs(before, -1);
  metrics.CountJobs(entry.state(), 1);
  const absl::Time now = absl::FromUnixMicros(WallMicros());
  if (entry.state() == v1::Job::STATE_STARTING)
    metrics.Placed(entry.key(), now);
  else
    metrics.Unqueued(entry.key());
  if (entry.state() == v1::Job::STATE_QUEUED) metrics.Queued(entry.key(), now);
}

void Drop(SchedulerCore& core, Entry& entry) {
  const std::string key = entry.key();
  core.metrics.ForgetJob(key);
  core.metrics.Unqueued(key);
  core.tenant_use.Leave(entry.record.job.owner());
  core.readying.Forget(entry);
  core.entries.erase(key);
  core.board.Show();
}

// The job is shown before its worker is told anything, and before it is dropped.
void Act(SchedulerCore& core, Entry& entry, const JobActions& actions) {
  if (actions.drop_attempt) {
    core.ledger.Release(entry.key());
    core.attempts.CloseLink(entry);
    entry.attempt.reset();
    entry.retry_cause = entry.record.job.reason();
    core.metrics.ForgetJob(entry.key());
    core.board.Show();
  }
  if (actions.shrink_promise) {
    const AttemptRecord& attempt = entry.attempt->record;
    // Fewer bytes: never refused.
    core.ledger.Resize(entry.key(), attempt.cap_bytes, attempt.plan.host_bytes()).IgnoreError();
    core.needs_round = true;
    core.board.Show();
  }
  if (actions.abandon_ready && entry.ready() == nullptr) entry.readiness.Reset();
  if (actions.make_ready && entry.ready() == nullptr) core.readying.Await(entry);
  if (entry.state() == v1::Job::STATE_QUEUED)
    core.admission.Enqueue(entry);
  else
    core.waiting->Remove(entry.key());
  core.Show(entry);
  if (actions.start_worker) core.admission.Launch(entry);
  if (actions.stop_worker) core.attempts.TellToStop(entry);
  if (actions.order_plan) core.attempts.TellOfPlan(entry);
  if (actions.keep_plan) entry.attempt->changes_plans = false;
  if (actions.ask_round) core.needs_round = true;
  if (actions.drop_job) Drop(core, entry);
}

}  // namespace

SchedulerCore::SchedulerCore(SchedulerSettings with, JobStore& jobs, JobIndex& shown,
                             Preparer& preparer, Metrics& measured)
    : settings(std::move(with)),
      store(jobs),
      index(shown),
      metrics(measured),
      ledger(settings.devices, settings.host_bytes),
      tenant_use(settings.tenants),
      in_hand(settings.state_dir + "/in-hand"),
      board(*this, settings.limits),
      readying(*this, settings, preparer),
      admission(*this),
      attempts(*this),
      closing(*this) {}

absl::StatusOr<JobState> SchedulerCore::Apply(Entry& entry, const JobEvent& event) {
  if (entry.storing)  // A programmer's mistake: Settle comes first.
    return absl::InternalError(absl::StrCat("job ", entry.key(), " is being stored as ready"));
  ASSIGN_OR_RETURN(JobStep step, Decide(entry, event));
  if (step.nothing) return entry.state();
  RETURN_IF_ERROR(store.Commit(step.ToChange(), step.urgency));
  return OnStored(entry, std::move(step));
}

absl::StatusOr<JobStep> SchedulerCore::Decide(const Entry& entry, const JobEvent& event) const {
  const AttemptRecord* attempt = entry.attempt ? &entry.attempt->record : nullptr;
  return StepJob({entry.record, attempt}, event, {.now_us = WallMicros(), .jitter = Jitter()});
}

JobState SchedulerCore::OnStored(Entry& entry, JobStep step) {
  const JobState before = entry.state();
  if (!step.same_job) entry.record = std::move(step.job);
  if (step.attempt && entry.attempt == nullptr) entry.attempt = std::make_unique<LiveAttempt>();
  if (step.attempt) entry.attempt->record = *std::move(step.attempt);
  if (entry.state() != before) {
    const std::string& reason = entry.record.job.reason();
    spdlog::info("job {}: {} -> {}: {}", entry.key(), NameOf(before), NameOf(entry.state()),
                 reason);
    CountMove(entry, before, metrics);
    needs_round = true;
  }
  const JobState state = entry.state();
  if (!step.same_job) Act(*this, entry, step.actions);
  return state;
}

void SchedulerCore::Show(Entry& entry) {
  index.Put(entry.record);
  if (HasAttempt(entry.state())) metrics.Job(entry.record.job);
}

void SchedulerCore::SaveProgress(Entry& entry) {
  entry.last_saved = SinceBoot();
  const absl::Status saved = store.Commit({.job = &entry.record});
  if (!saved.ok()) spdlog::warn("job {}: progress not stored: {}", entry.key(), saved.message());
}

Entry* SchedulerCore::Find(const std::string& key) {
  const auto found = entries.find(key);
  return found == entries.end() ? nullptr : found->second.get();
}

bool SchedulerCore::IsNamedByComing(const v1::Job& job) const {
  return absl::c_any_of(coming, [name = JobName(job)](const auto& one) {
    return absl::c_linear_search(one.second, name);
  });
}

absl::Status SchedulerCore::TryPost(Task task) {
  if (draining) return Draining();
  return inbox.TryPost(std::move(task)) ? absl::OkStatus()
                                        : QueueFull("waiting requests", kMaxInboxTasks);
}

void SchedulerCore::Post(Task task) {
  inbox.Post([this, task = std::move(task)]() mutable {
    if (!stopping) task();
  });
}

}  // namespace snug::server
