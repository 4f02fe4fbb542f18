#include "server/scheduler/scheduler.h"
#include "server/scheduler/device_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/node/shared_weights.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/trash.h"

namespace snug::server {
namespace {

// What the store knows of it: a job that has had an attempt came back at a time that is not kept.
absl::Time QueuedSince(const v1::Job& job) {
  const auto& created = job.create_time();
  if (job.epoch() > 0) return absl::FromUnixMicros(WallMicros());
  return absl::FromUnixSeconds(created.seconds()) + absl::Nanoseconds(created.nanos());
}

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
      ledger_(settings_.devices, settings_.host_bytes),
      looks_(settings_.limits),
      in_hand_(settings_.launcher.state_dir + "/in-hand"),
      stored_plans_(settings_.devices),
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
  index_.SetReasons(nullptr);
  for (auto& [id, entry] : entries_) entry->readiness.Reset();
  link_.reset();
  prepares_.Stop();
  pool_.Stop();
  closing_pool_.Stop();
  gpu_pool_.Stop();
}

absl::Status Scheduler::Load() {
  ASSIGN_OR_RETURN(StoredState state, store_.Load());
  index_.SetArchive(&store_);
  index_.SetReasons([waiting = waiting_](const std::set<std::string>& jobs) {
    return waiting->Reasons(jobs, WallMicros());
  });
  next_order_ = state.last_order + 1;
  for (const auto& [job_state, count] : state.counts) metrics_.CountJobs(job_state, count);
  LoadEntries(state);
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
    attended_.insert(entry->id());
    ShowPlace(*entry);
  }
  for (const std::string& gone :
       SortTrash(settings_.launcher.state_dir, [this](const std::string& id) {
         const absl::StatusOr<JobRecord> job = store_.FindJob(id);
         return job.ok() && job->id() == id;
       }))
    pool_.Post([gone] { EmptyTrash(gone); });
  for (const DrainRecord& drain : state.drains) drained_[drain.device] = drain;
  for (const Reservation& promise : state.reservations) {
    const Entry* entry = Find(promise.job);
    const bool held = entry != nullptr && entry->attempt != nullptr;
    ledger_.Restore(promise.device, promise.job,
                    held ? PromiseOf(entry->attempt->record.plan, promise.bytes)
                         : Promise{.bytes = promise.bytes});
  }
  pool_.Post([state_dir = settings_.launcher.state_dir] { SweepSharedWeights(state_dir); });
  ShowDevices();
  return absl::OkStatus();
}

// What waits is asked in its old order: a job whose plans are not known yet keeps its place, and
// nobody behind it is placed before they are.
void Scheduler::LoadEntries(StoredState& state) {
  for (JobRecord& record : state.jobs) {
    index_.Put(record);
    auto entry = std::make_unique<Entry>();
    entry->record = std::move(record);
    entry->counted_steps = entry->record.job.progress().global_step();
    entry->counted_tokens = entry->record.job.progress().num_tokens();
    entry->retry_cause = entry->record.job.reason();
    const auto plans = state.plans.find(state.plans_of[entry->id()]);
    // After an attempt there may be a checkpoint to go on from, which is to be looked at again.
    const bool runs = HasAttempt(entry->state());  // When it ends, its checkpoints are looked at.
    const v1::Job& job = entry->record.job;
    const bool begins = job.epoch() == 0 && job.extends_step() == 0;
    if (plans != state.plans.end() && (begins || runs))
      if (auto ready = stored_plans_.Unpack(plans->second, entry->record))
        entry->readiness.Finish(*std::move(ready));
    const bool paused = entry->state() == v1::Job::PAUSED;
    if (entry->ready() == nullptr && !HasAttempt(entry->state()) && !paused) AwaitReady(*entry);
    if (entry->state() == v1::Job::QUEUED) {
      Enqueue(*entry);
      metrics_.Queued(entry->id(), QueuedSince(entry->record.job));
    }
    const std::string id = entry->id();
    tenant_use_.Enter(job.owner());
    entries_[id] = std::move(entry);
  }
}

void Scheduler::Post(Task task) {
  inbox_.Post([this, task = std::move(task)]() mutable {
    if (!stopping_) task();
  });
}

void Scheduler::Loop() {
  times_.last_tick = SinceBoot();
  while (!stopping_) {
    absl::Duration next = times_.next_tick;
    if (changed_ && !AwaitsLook())
      next = std::min(next, times_.last_round + settings_.limits.between_rounds);
    const absl::Duration wait = std::max(absl::ZeroDuration(), next - SinceBoot());
    for (Task& task : inbox_.Take(wait)) task();
    if (!made_ready_.empty()) OnReady(std::exchange(made_ready_, {}));
    if (SinceBoot() >= times_.next_tick) Tick();
    if (!pools_full_) GetSomeReady();
    if (!draining_) Schedule();
  }
  // What was accepted before the end is answered: replies are owed, and their commits are quick.
  do {
    for (Task& task : inbox_.Take(storing_ > 0 ? settings_.limits.tick : absl::ZeroDuration()))
      task();
  } while (storing_ > 0);
  for (auto& [id, entry] : entries_)
    if (entry->attempt != nullptr) SaveProgress(*entry);
}

void Scheduler::Tick() {
  const absl::Duration now = SinceBoot();
  const absl::Duration away = now - std::exchange(times_.last_tick, now);
  if (away > settings_.limits.asleep) ForgiveSilence(away, entries_);
  times_.next_tick = now + settings_.limits.tick;
  const std::vector<std::string> attended(attended_.begin(), attended_.end());
  for (const std::string& id : attended) {
    Entry* entry = Find(id);
    if (entry != nullptr && entry->attempt != nullptr)
      LookAfter(*entry);
    else
      attended_.erase(id);
  }
  pools_full_ = false;
  LookAtGpus();
  TellWaiting();
  if (now - times_.last_maintained < settings_.limits.maintain_store) return;
  times_.last_maintained = now;
  store_.Maintain();
}

// Why a job waits is not stored, and not worked out before somebody wants to know.
void Scheduler::TellWaiting() {
  if (SinceBoot() < times_.next_telling) return;
  times_.next_telling = SinceBoot() + settings_.limits.tell_waiting;
  const std::set<std::string> watched = index_.Watched();
  if (watched.empty()) return;
  for (const auto& [id, reason] : waiting_->Reasons(watched, WallMicros())) {
    const JobPtr shown = index_.FindLive(id);
    const Entry* entry = Find(id);
    if (entry == nullptr || shown == nullptr || shown->reason() == reason) continue;
    JobRecord told = entry->record;
    told.job.set_reason(reason);
    index_.Put(told);
  }
}

absl::Status Scheduler::Save(Entry& entry, JobRecord changed, Change change, Urgency urgency) {
  change.job = &changed;
  RETURN_IF_ERROR(store_.Commit(change, urgency));
  OnSaved(entry, std::move(changed), change);
  return absl::OkStatus();
}

void Scheduler::OnSaved(Entry& entry, JobRecord changed, const Change& change) {
  if (change.attempt != nullptr && entry.attempt != nullptr)
    entry.attempt->record = *change.attempt;
  if (changed.state() != entry.state()) {
    spdlog::info("job {}: {} -> {}: {}", entry.id(), NameOf(entry.state()), NameOf(changed.state()),
                 changed.job.reason());
    metrics_.CountJobs(entry.state(), -1);
    metrics_.CountJobs(changed.state(), 1);
    const absl::Time now = absl::FromUnixMicros(WallMicros());
    if (changed.state() == v1::Job::STARTING)
      metrics_.Placed(entry.id(), now);
    else
      metrics_.Unqueued(entry.id());
    if (changed.state() == v1::Job::QUEUED) metrics_.Queued(entry.id(), now);
    changed_ = true;
  }
  entry.record = std::move(changed);
  if (entry.state() == v1::Job::QUEUED)
    Enqueue(entry);
  else
    waiting_->Remove(entry.id());
  Show(entry);
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
  metrics_.Unqueued(id);
  waiting_->Remove(id);
  if (const Entry* entry = Find(id)) tenant_use_.Leave(entry->record.job.owner());
  entries_.erase(id);
  ShowDevices();
}

Entry* Scheduler::Find(const std::string& id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.get();
}

}  // namespace snug::server
