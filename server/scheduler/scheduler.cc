#include "server/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/log.h"
#include "server/scheduler/changes.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/device_plans.h"
#include "server/scheduler/plan_changes.h"
#include "server/scheduler/trash.h"

namespace snug::server {
namespace {

// What the store knows of it: a job that has had an attempt came back at a time that is not kept.
absl::Time QueuedSince(const v1::Job& job) {
  const auto& created = job.create_time();
  if (job.epoch() > 0) return absl::FromUnixMicros(WallMicros());
  return absl::FromUnixSeconds(created.seconds()) + absl::Nanoseconds(created.nanos());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Start(SchedulerSettings settings,
                                                            JobStore& store, JobIndex& index,
                                                            Preparer& preparer, Metrics& metrics) {
  std::unique_ptr<Scheduler> scheduler(
      new Scheduler(std::move(settings), store, index, preparer, metrics));
  RETURN_IF_ERROR(scheduler->Load());
  RETURN_IF_ERROR(scheduler->core_.attempts.Listen());
  scheduler->thread_ = std::thread([raw = scheduler.get()] { raw->Loop(); });
  return scheduler;
}

Scheduler::Scheduler(SchedulerSettings settings, JobStore& store, JobIndex& index,
                     Preparer& preparer, Metrics& metrics)
    : core_(std::move(settings), store, index, preparer, metrics) {}

Scheduler::~Scheduler() { Drain(); }

void Scheduler::Drain() {
  core_.draining = true;
  if (!thread_.joinable()) return;
  core_.stopping = true;
  thread_.join();
  core_.inbox.Close();
  core_.index.SetReasons(nullptr);
  for (auto& [id, entry] : core_.entries) entry->readiness.Reset();
  core_.attempts.StopListening();
  core_.readying.Stop();
  core_.pool.Stop();
  core_.closing.Stop();
  core_.board.Stop();
}

absl::Status Scheduler::Load() {
  ASSIGN_OR_RETURN(StoredState state, core_.store.Load());
  core_.index.SetArchive(&core_.store);
  core_.index.SetReasons([waiting = core_.waiting](const std::set<std::string>& jobs) {
    return waiting->Reasons(jobs, WallMicros());
  });
  creation_.BeginAfter(state.last_order);
  for (const auto& [job_state, count] : state.counts) core_.metrics.CountJobs(job_state, count);
  LoadEntries(state);
  for (AttemptRecord& attempt : state.open_attempts) {
    Entry* entry = core_.Find(attempt.job);
    if (entry == nullptr || !HasAttempt(entry->state()))
      return absl::DataLossError(
          absl::StrCat("the store has an open attempt of job ", attempt.job, ", which has none"));
    core_.attempts.Adopt(*entry, std::move(attempt));
  }
  for (const std::string& gone :
       SortTrash(core_.settings.state_dir,
                 [this](const std::string& job) { return core_.store.FindJob(job).ok(); }))
    core_.pool.Post([gone] { EmptyTrash(gone); });
  for (const DrainRecord& drain : state.drains) core_.drained[drain.device] = drain;
  for (const Reservation& promise : state.reservations) {
    const Entry* entry = core_.Find(promise.job);
    const bool held = entry != nullptr && entry->attempt != nullptr;
    core_.ledger.Restore(promise.device, promise.job,
                         held ? PromiseOf(entry->attempt->record.plan, promise.bytes)
                              : Promise{.bytes = promise.bytes});
  }
  core_.pool.Post([&node = *core_.settings.node] { node.SweepSharedWeights(); });
  core_.board.Show();
  return absl::OkStatus();
}

// What waits is asked in its old order: a job whose plans are not known yet keeps its place, and
// nobody behind it is placed before they are.
void Scheduler::LoadEntries(StoredState& state) {
  for (JobRecord& record : state.jobs) {
    core_.index.Put(record);
    auto entry = std::make_unique<Entry>();
    entry->record = std::move(record);
    entry->counted_steps = entry->record.job.progress().global_step();
    entry->counted_tokens = entry->record.job.progress().num_tokens();
    entry->retry_cause = entry->record.job.reason();
    const auto plans = state.plans.find(state.plans_of[entry->key()]);
    // After an attempt there may be a checkpoint to go on from, which is to be looked at again.
    const bool runs = HasAttempt(entry->state());  // When it ends, its checkpoints are looked at.
    const v1::Job& job = entry->record.job;
    const bool begins = job.epoch() == 0 && job.extends_step() == 0;
    if (plans != state.plans.end() && (begins || runs))
      if (SharedReady ready = core_.readying.Restore(plans->second, entry->record))
        entry->readiness.Finish(std::move(ready));
    const bool paused = entry->state() == v1::Job::STATE_PAUSED;
    if (entry->ready() == nullptr && !HasAttempt(entry->state()) && !paused)
      core_.readying.Await(*entry);
    if (entry->state() == v1::Job::STATE_QUEUED) {
      core_.admission.Enqueue(*entry);
      core_.metrics.Queued(entry->key(), QueuedSince(entry->record.job));
    }
    const std::string id = entry->key();
    core_.tenant_use.Enter(job.owner());
    core_.entries[id] = std::move(entry);
  }
  core_.readying.EndRestoring();
}

void Scheduler::Loop() {
  last_tick_ = SinceBoot();
  while (!core_.stopping) {
    const absl::Duration next =
        std::min({next_tick_, core_.admission.NextRound(), core_.readying.NextBeginning()});
    const absl::Duration wait = std::max(absl::ZeroDuration(), next - SinceBoot());
    for (Task& task : core_.inbox.Take(wait)) task();
    if (SinceBoot() >= next_tick_) Tick();
    core_.readying.GoOn();
    if (!core_.draining) core_.admission.Schedule();
  }
  // What was accepted before the end is answered: replies are owed, and their commits are quick.
  const absl::Duration tick = core_.settings.limits.tick;
  // Likewise what is ready: its callbacks lead here.
  const auto owes = [this] { return !core_.coming.empty() || core_.readying.HasToStore(); };
  do {
    core_.readying.StoreReady();
    for (Task& task : core_.inbox.Take(owes() ? tick : absl::ZeroDuration())) task();
  } while (owes());
  core_.EachAttended([&](Entry& entry) { core_.SaveProgress(entry); });
}

void Scheduler::Tick() {
  const SchedulerLimits& limits = core_.settings.limits;
  const absl::Duration now = SinceBoot();
  const absl::Duration away = now - std::exchange(last_tick_, now);
  if (away > limits.asleep) core_.attempts.ForgiveSilence(away);
  next_tick_ = now + limits.tick;
  core_.attempts.LookAfterAll();
  core_.readying.OnTick();
  core_.board.LookAtGpus();
  TellWaiting();
  if (now - last_maintained_ < limits.maintain_store) return;
  last_maintained_ = now;
  core_.store.Maintain();
}

// Why a job waits is not stored, and not worked out before somebody wants to know.
void Scheduler::TellWaiting() {
  if (SinceBoot() < next_telling_) return;
  next_telling_ = SinceBoot() + core_.settings.limits.tell_waiting;
  const std::set<std::string> watched = core_.index.Watched();
  if (watched.empty()) return;
  for (const auto& [id, reason] : core_.waiting->Reasons(watched, WallMicros())) {
    const JobPtr shown = core_.index.FindLive(id);
    const Entry* entry = core_.Find(id);
    if (entry == nullptr || shown == nullptr || shown->reason() == reason) continue;
    JobRecord told = entry->record;
    told.job.set_reason(reason);
    core_.index.Put(told);
  }
}

void Scheduler::Create(CreateOrder order, Reply reply) {
  const absl::Status posted = core_.TryPost([this, order = std::move(order), reply]() mutable {
    creation_.Create(std::move(order), reply);
  });
  if (!posted.ok()) reply(posted);
}

void Scheduler::Ask(std::function<absl::StatusOr<v1::Job>()> act, Reply reply) {
  const absl::Status posted = core_.TryPost([act = std::move(act), reply] { reply(act()); });
  if (!posted.ok()) reply(posted);
}

void Scheduler::Cancel(v1::CancelJobRequest request, Reply reply) {
  Ask(
      [this, request = std::move(request)] {
        return JobChanger(core_).Ask(request.id(), CancelAsked{request.keep()});
      },
      std::move(reply));
}

void Scheduler::Pause(std::string key, Reply reply) {
  Ask([this, key = std::move(key)] { return JobChanger(core_).Ask(key, PauseAsked{}); },
      std::move(reply));
}

void Scheduler::Resume(std::string key, Reply reply) {
  Ask([this, key = std::move(key)] { return JobChanger(core_).Ask(key, ResumeAsked{}); },
      std::move(reply));
}

void Scheduler::Update(v1::UpdateJobRequest request, Reply reply) {
  Ask([this, request = std::move(
                 request)] { return JobChanger(core_).Ask(request.id(), UpdateAsked{request}); },
      std::move(reply));
}

void Scheduler::Delete(std::string key, Reply reply) {
  Ask([this, key = std::move(key)] { return JobChanger(core_).Delete(key); }, std::move(reply));
}

void Scheduler::Squeeze(v1::SqueezeJobRequest request, Reply reply) {
  Ask([this, request = std::move(request)] { return PlanChanger(core_).Squeeze(request); },
      std::move(reply));
}

void Scheduler::Relax(v1::RelaxJobRequest request, Reply reply) {
  Ask([this, request = std::move(request)] { return PlanChanger(core_).Relax(request); },
      std::move(reply));
}

}  // namespace snug::server
