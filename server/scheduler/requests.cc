// What users ask for: a new job, and its way until it is queued; cancelling.
#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/prepared_dataset.h"
#include "server/data/prompts.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {
namespace {

constexpr int kIdDraws =
    8;  // Of 16 million ids per display name; all taken means something else is wrong.

// All that the slow work needs, copied: the scheduler's entry may be gone when it runs.
struct ReadyWork {
  JobRecord record;
  std::vector<Device> devices;
  std::string checkpoints_dir;
  std::shared_ptr<std::atomic<bool>> abandoned;
  std::function<void(const std::string&)> say;
};

absl::StatusOr<ReadyJob> MakeReady(const ReadyWork& work, const JobIndex& index,
                                   Preparer& preparer) {
  const JobRecord& record = work.record;
  const bool prepared = !record.train_data.empty();
  ReadyJob ready;
  ASSIGN_OR_RETURN(
      ready.checked,
      CheckJob(
          record.job.spec(), [&](const std::string& id) { return index.FinishedModel(id); },
          prepared ? InputFiles::kDone : InputFiles::kNeeded));
  if (prepared) {
    ready.folders = {.train = record.train_data,
                     .eval = record.eval_data,
                     .prompts = PromptsFile(ready.checked.spec, record.train_data),
                     .ready = true};
  } else {
    ASSIGN_OR_RETURN(ready.folders,
                     preparer.Prepare(ready.checked.spec, ready.checked.model_dir,
                                      {.cancelled = work.abandoned.get(), .say = work.say}));
  }
  ASSIGN_OR_RETURN(ready.summary, ReadSummary(ready.folders.train));
  ASSIGN_OR_RETURN(const RowLengths lengths, LengthsOf(ready.folders));
  if (!ready.folders.eval.empty()) ready.summary.set_eval_rows(lengths.eval.rows);
  ASSIGN_OR_RETURN(ready.plans,
                   PlansOn(work.devices, ready.checked, lengths, PlansWanted::kForPlacing));
  if (record.job.epoch() == 0) return ready;
  ASSIGN_OR_RETURN(CheckpointScan scan, FindNewest(record.id(), work.checkpoints_dir));
  ready.resume = std::move(scan.newest);
  return ready;
}

}  // namespace

void Scheduler::Create(CreateOrder order, Reply reply) {
  if (draining_) return reply(Draining());
  const bool posted = inbox_.TryPost(
      [this, order = std::move(order), reply]() mutable { DoCreate(std::move(order), reply); });
  if (!posted) reply(QueueFull("waiting requests", kMaxInboxTasks));
}

void Scheduler::Cancel(std::string id, Reply reply) {
  if (draining_) return reply(Draining());
  const bool posted = inbox_.TryPost([this, id = std::move(id), reply] { DoCancel(id, reply); });
  if (!posted) reply(QueueFull("waiting requests", kMaxInboxTasks));
}

void Scheduler::DoCreate(CreateOrder order, const Reply& reply) {
  const int64_t now_us = WallMicros();
  // Asked again here, on the one thread: two equal requests may both have passed the first look.
  if (const auto known = index_.FindRequest(order.request_id, now_us)) {
    if (known->body_sha256 != order.body_sha256)
      return reply(RequestIdReused(order.request_id, known->job));
    absl::StatusOr<JobPtr> job = index_.Find(known->job);
    return job.ok() ? reply(**job) : reply(job.status());
  }
  if (static_cast<int64_t>(entries_.size()) >= settings_.limits.max_live_jobs)
    return reply(QueueFull("jobs that have not ended", settings_.limits.max_live_jobs));
  const auto taken = [&](const std::string& id) {
    absl::StatusOr<JobPtr> job = index_.Find(id);
    return job.ok() && (*job)->id() == id;
  };
  std::string id = order.job_id;
  for (int draw = 0; order.job_id.empty() && draw < kIdDraws && (id.empty() || taken(id)); ++draw)
    id = NewJobId(order.job.spec.display_name());
  if (taken(id)) return reply(JobExists(id));
  JobRecord record;
  record.order = next_order_;
  v1::Job& job = record.job;
  job.set_id(id);
  job.set_name(absl::StrCat("tenants/default/jobs/", id));
  job.set_display_name(order.job.spec.display_name().empty() ? id : order.job.spec.display_name());
  job.set_state(v1::Job::PREPARING);
  job.set_reason("its dataset is being prepared");
  *job.mutable_spec() = order.job.spec;
  *job.mutable_create_time() = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(now_us);
  Change change{.job = &record};
  change.events.push_back(
      {.job = id, .to = v1::Job::PREPARING, .reason = job.reason(), .wall_us = now_us});
  if (!order.request_id.empty())
    change.request =
        RequestRecord{order.request_id, order.body_sha256, id,
                      now_us + absl::ToInt64Microseconds(settings_.limits.request_memory)};
  const absl::Status stored = store_.Commit(change, Urgency::kRefusable);
  if (!stored.ok()) return reply(stored);
  ++next_order_;
  spdlog::info("job {}: new, \"{}\"", id, job.display_name());
  metrics_.CountJobs(v1::Job::PREPARING, 1);
  if (change.request) index_.PutRequest(*change.request);
  auto entry = std::make_unique<Entry>();
  entry->record = std::move(record);
  Show(*entry);
  reply(entry->record.job);
  entries_[id] = std::move(entry);
}

void Scheduler::DoCancel(const std::string& id, const Reply& reply) {
  absl::StatusOr<JobPtr> job = index_.Find(id);
  if (!job.ok()) return reply(job.status());
  Entry* entry = Find((*job)->id());
  if (entry == nullptr) {
    if ((*job)->state() == v1::Job::CANCELLED) return reply(**job);
    return reply(WrongState((*job)->id(), "cancel", NameOf((*job)->state())));
  }
  const absl::Status status = CancelEntry(*entry);
  if (!status.ok()) return reply(status);
  reply(entry->record.job);
  if (IsTerminal(entry->state())) Drop(entry->id());
}

absl::Status Scheduler::CancelEntry(Entry& entry) {
  if (entry.state() == v1::Job::CANCELLING) return absl::OkStatus();
  if (!HasAttempt(entry.state())) return Move(entry, v1::Job::CANCELLED, "cancelled", {});
  return Move(entry, v1::Job::CANCELLING, "is being cancelled", {});
}

// Slow: on a pool. Answers through the inbox, unless the job has gone meanwhile.
void Scheduler::GetReady(Entry& entry) {
  const std::string id = entry.id();
  ReadyWork work{.record = entry.record,
                 .devices = ledger_.devices(),
                 .checkpoints_dir = CheckpointsDir(settings_.launcher.state_dir, id),
                 .abandoned = entry.abandoned};
  work.say = [this, id](const std::string& progress) {
    Post([this, id, progress] {
      Entry* entry = Find(id);
      if (entry == nullptr || entry->state() != v1::Job::PREPARING) return;
      entry->record.job.set_reason("its dataset is being prepared: " + progress);
      Show(*entry);
    });
  };
  TaskPool& pool = entry.state() == v1::Job::PREPARING ? prepare_pool_ : pool_;
  entry.getting_ready = pool.Post([this, id, work = std::move(work)] {
    if (work.abandoned->load()) return;
    auto ready = std::make_shared<absl::StatusOr<ReadyJob>>(MakeReady(work, index_, preparer_));
    Post([this, id, ready] { OnReady(id, std::move(*ready)); });
  });
}

void Scheduler::OnReady(const std::string& id, absl::StatusOr<ReadyJob> ready) {
  Entry* entry = Find(id);
  if (entry == nullptr || HasAttempt(entry->state())) return;
  entry->getting_ready = false;
  absl::Status status = ready.status();
  if (!ready.ok()) {
    status = FailJob(*entry, ToJobError(ready.status()));
  } else if (entry->state() == v1::Job::PREPARING) {
    JobRecord changed = entry->record;
    changed.train_data = ready->folders.train;
    changed.eval_data = ready->folders.eval;
    *changed.job.mutable_dataset() = ready->summary;
    Change change;
    status = MoveJob(changed, v1::Job::QUEUED, "waits to be placed", WallMicros(), change);
    if (status.ok())
      status = Save(*entry, std::move(changed), std::move(change), Urgency::kMustLand);
    if (status.ok()) entry->ready = *std::move(ready);
  } else {
    entry->ready = *std::move(ready);
    changed_ = true;
  }
  // Not stored: the next tick starts over.
  if (!status.ok()) spdlog::error("job {}: {}", id, status.message());
}

absl::Status Scheduler::FailJob(Entry& entry, v1::Error error) {
  JobRecord changed = entry.record;
  Change change;
  RETURN_IF_ERROR(MoveJob(changed, v1::Job::FAILED, error.message(), WallMicros(), change));
  *changed.job.mutable_error() = std::move(error);
  RETURN_IF_ERROR(Save(entry, std::move(changed), std::move(change), Urgency::kMustLand));
  Drop(entry.id());
  return absl::OkStatus();
}

}  // namespace snug::server
