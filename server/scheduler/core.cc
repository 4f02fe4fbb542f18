#include "server/scheduler/core.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/scheduler/clock.h"

namespace snug::server {

SchedulerCore::SchedulerCore(SchedulerSettings with, JobStore& jobs, JobIndex& shown,
                             Preparer& preparer, Metrics& measured)
    : settings(std::move(with)),
      store(jobs),
      index(shown),
      metrics(measured),
      ledger(settings.devices, settings.host_bytes),
      tenant_use(settings.tenants),
      board(*this, settings.limits),
      readying(*this, settings, preparer),
      admission(*this),
      attempts(*this),
      closing(*this) {}

absl::Status SchedulerCore::Save(Entry& entry, JobRecord changed, Change change, Urgency urgency) {
  change.job = &changed;
  RETURN_IF_ERROR(store.Commit(change, urgency));
  OnSaved(entry, std::move(changed), change);
  return absl::OkStatus();
}

void SchedulerCore::OnSaved(Entry& entry, JobRecord changed, const Change& change) {
  if (change.attempt != nullptr && entry.attempt != nullptr)
    entry.attempt->record = *change.attempt;
  if (changed.state() != entry.state()) {
    spdlog::info("job {}: {} -> {}: {}", entry.id(), NameOf(entry.state()), NameOf(changed.state()),
                 changed.job.reason());
    metrics.CountJobs(entry.state(), -1);
    metrics.CountJobs(changed.state(), 1);
    const absl::Time now = absl::FromUnixMicros(WallMicros());
    if (changed.state() == v1::Job::STATE_STARTING)
      metrics.Placed(entry.id(), now);
    else
      metrics.Unqueued(entry.id());
    if (changed.state() == v1::Job::STATE_QUEUED) metrics.Queued(entry.id(), now);
    needs_round = true;
  }
  entry.record = std::move(changed);
  if (entry.state() == v1::Job::STATE_QUEUED)
    admission.Enqueue(entry);
  else
    waiting->Remove(entry.id());
  Show(entry);
}

absl::Status SchedulerCore::Move(Entry& entry, JobState to, std::string reason, Change change) {
  JobRecord changed = entry.record;
  RETURN_IF_ERROR(MoveJob(changed, to, std::move(reason), WallMicros(), change));
  return Save(entry, std::move(changed), std::move(change), Urgency::kMustLand);
}

absl::Status SchedulerCore::FailJob(Entry& entry, v1::Error error) {
  JobRecord changed = entry.record;
  Change change;
  RETURN_IF_ERROR(MoveJob(changed, v1::Job::STATE_FAILED, error.message(), WallMicros(), change));
  *changed.job.mutable_error() = std::move(error);
  RETURN_IF_ERROR(Save(entry, std::move(changed), std::move(change), Urgency::kMustLand));
  Drop(entry.id());
  return absl::OkStatus();
}

void SchedulerCore::Show(Entry& entry) {
  index.Put(entry.record);
  if (HasAttempt(entry.state())) metrics.Job(entry.record.job);
}

void SchedulerCore::SaveProgress(Entry& entry) {
  entry.last_saved = SinceBoot();
  const absl::Status saved = store.Commit({.job = &entry.record});
  if (!saved.ok()) spdlog::warn("job {}: progress not stored: {}", entry.id(), saved.message());
}

void SchedulerCore::Drop(const std::string& id) {
  metrics.ForgetJob(id);
  metrics.Unqueued(id);
  waiting->Remove(id);
  if (const Entry* entry = Find(id)) {
    tenant_use.Leave(entry->record.job.owner());
    readying.Forget(*entry);
  }
  entries.erase(id);
  board.Show();
}

Entry* SchedulerCore::Find(const std::string& id) {
  const auto found = entries.find(id);
  return found == entries.end() ? nullptr : found->second.get();
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
