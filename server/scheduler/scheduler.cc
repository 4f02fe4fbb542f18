#include "server/scheduler/scheduler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

// Of workers that this process did not listen to.
void ForgiveSilence(absl::Duration away, std::map<std::string, std::unique_ptr<Entry>>& entries) {
  const absl::Duration now = SinceBoot();
  spdlog::warn("away for {} s", absl::ToInt64Seconds(away));
  for (auto& [id, entry] : entries) {
    if (entry->attempt == nullptr) continue;
    entry->attempt->last_heard = now;
    entry->attempt->started += away;
    entry->attempt->pace.Begin(now);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Start(SchedulerSettings settings,
                                                            JobStore& store, JobIndex& index,
                                                            Preparer& preparer, Metrics& metrics) {
  std::unique_ptr<Scheduler> scheduler(
      new Scheduler(std::move(settings), store, index, preparer, metrics));
  RETURN_IF_ERROR(scheduler->Load());
  Scheduler* raw = scheduler.get();
  LinkServer::Handlers handlers;
  handlers.on_events = [raw](ConnectionId link) {
    raw->Post([raw, link] {
      for (v1::WorkerEvent& event : raw->link_->Take(link)) raw->OnEvent(link, std::move(event));
    });
  };
  handlers.on_closed = [raw](ConnectionId link, const absl::Status& why, LinkServer::Events rest) {
    raw->Post([raw, link, why, rest = std::move(rest)] {
      for (const v1::WorkerEvent& event : rest) raw->OnEvent(link, event);
      raw->OnClosed(link, why);
    });
  };
  const std::string path = scheduler->settings_.launcher.state_dir + "/link.sock";
  ASSIGN_OR_RETURN(scheduler->link_, LinkServer::Start(path, std::move(handlers)));
  scheduler->thread_ = std::thread([raw] { raw->Loop(); });
  return scheduler;
}

Scheduler::Scheduler(SchedulerSettings settings, JobStore& store, JobIndex& index,
                     Preparer& preparer, Metrics& metrics)
    : settings_(std::move(settings)),
      store_(store),
      index_(index),
      preparer_(preparer),
      metrics_(metrics),
      ledger_(settings_.devices),
      looks_(settings_.limits),
      in_hand_(settings_.launcher.state_dir + "/in-hand"),
      prepares_(settings_.prepares) {
  settings_.launcher.instance = store_.instance_uuid();
}

Scheduler::~Scheduler() { Drain(); }

void Scheduler::Drain() {
  draining_ = true;
  if (!thread_.joinable()) return;
  stopping_ = true;
  thread_.join();
  inbox_.Close();
  for (auto& [id, entry] : entries_) entry->abandoned->store(true);
  link_.reset();
  prepares_.Stop();
  pool_.Stop();
  gpu_pool_.Stop();
}

absl::Status Scheduler::Load() {
  ASSIGN_OR_RETURN(StoredState state, store_.Load());
  const int64_t now_us = WallMicros();
  for (const RequestRecord& request : state.requests)
    if (request.expires_us >= now_us) index_.PutRequest(request);
  for (JobRecord& record : state.jobs) {
    next_order_ = record.order + 1;
    index_.Put(record);
    metrics_.CountJobs(record.state(), 1);
    if (IsTerminal(record.state())) continue;
    auto entry = std::make_unique<Entry>();
    entry->record = std::move(record);
    entry->counted_steps = entry->record.job.progress().global_step();
    entry->counted_tokens = entry->record.job.progress().num_tokens();
    entry->retry_cause = entry->record.job.reason();
    const std::string id = entry->id();
    entries_[id] = std::move(entry);
  }
  for (AttemptRecord& attempt : state.open_attempts) {
    Entry* entry = Find(attempt.job);
    if (entry == nullptr || !HasAttempt(entry->state()))
      return absl::DataLossError(
          absl::StrCat("the store has an open attempt of job ", attempt.job, ", which has none"));
    entry->attempt = std::make_unique<LiveAttempt>();
    entry->attempt->record = std::move(attempt);
    entry->attempt->started = entry->attempt->last_heard = SinceBoot();
    entry->attempt->shim = ShimWatch::Adopt(
        AttemptDir(settings_.launcher.state_dir, entry->id(), entry->attempt->record.epoch),
        static_cast<pid_t>(entry->attempt->record.shim_pid));
    entry->attempt->pace.Begin(SinceBoot());
    ShowPlace(*entry);
  }
  for (const Reservation& promise : state.reservations)
    ledger_.Restore(promise.device, promise.job, promise.bytes);
  ShowDevices();
  return absl::OkStatus();
}

void Scheduler::Post(Task task) {
  inbox_.Post([this, task = std::move(task)]() mutable {
    if (!stopping_) task();
  });
}

void Scheduler::Loop() {
  absl::Duration last_tick = SinceBoot();
  while (!stopping_) {
    for (Task& task : inbox_.Take(settings_.limits.tick)) task();
    const absl::Duration away = SinceBoot() - std::exchange(last_tick, SinceBoot());
    if (away > settings_.limits.asleep) ForgiveSilence(away, entries_);
    std::vector<std::string> ids;
    for (const auto& [id, entry] : entries_) ids.push_back(id);
    for (const std::string& id : ids) {
      Entry* entry = Find(id);
      if (entry->attempt != nullptr)
        LookAfter(*entry);
      else if (!entry->ready && !entry->getting_ready && entry->state() != v1::Job::PAUSED &&
               SinceBoot() >= entry->ready_again)
        GetReady(*entry);
    }
    if (!draining_) Schedule();
    LookAtGpus();
    if (SinceBoot() - last_maintained_ < settings_.limits.maintain_store) continue;
    last_maintained_ = SinceBoot();
    store_.Maintain();
  }
  // What was accepted before the end is answered: replies are owed, and their commits are quick.
  for (Task& task : inbox_.Take(absl::ZeroDuration())) task();
  for (auto& [id, entry] : entries_)
    if (entry->attempt != nullptr) SaveProgress(*entry);
}

absl::Status Scheduler::Save(Entry& entry, JobRecord changed, Change change, Urgency urgency) {
  change.job = &changed;
  RETURN_IF_ERROR(store_.Commit(change, urgency));
  if (change.attempt != nullptr && entry.attempt != nullptr)
    entry.attempt->record = *change.attempt;
  if (changed.state() != entry.state()) {
    spdlog::info("job {}: {} -> {}: {}", entry.id(), NameOf(entry.state()), NameOf(changed.state()),
                 changed.job.reason());
    metrics_.CountJobs(entry.state(), -1);
    metrics_.CountJobs(changed.state(), 1);
    changed_ = true;
  }
  entry.record = std::move(changed);
  Show(entry);
  return absl::OkStatus();
}

absl::Status Scheduler::Move(Entry& entry, JobState to, std::string reason, Change change) {
  JobRecord changed = entry.record;
  RETURN_IF_ERROR(MoveJob(changed, to, std::move(reason), WallMicros(), change));
  return Save(entry, std::move(changed), std::move(change), Urgency::kMustLand);
}

void Scheduler::Show(Entry& entry) {
  index_.Put(entry.record);
  if (HasAttempt(entry.state())) metrics_.Job(entry.record.job);
}

void Scheduler::SaveProgress(Entry& entry) {
  entry.last_saved = SinceBoot();
  const absl::Status saved = store_.Commit({.job = &entry.record});
  if (!saved.ok()) spdlog::warn("job {}: progress not stored: {}", entry.id(), saved.message());
}

void Scheduler::Drop(const std::string& id) {
  metrics_.ForgetJob(id);
  entries_.erase(id);
  ShowDevices();
}

Entry* Scheduler::Find(const std::string& id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.get();
}

}  // namespace snug::server
