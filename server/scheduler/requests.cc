// What users ask for: a new job, and its way until it is queued.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/prompts.h"
#include "server/data/sources.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/job/transient.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/auto_sizes.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/device_plans.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {
namespace {

constexpr const char* kWaitsToBePrepared = "waits to be prepared";
constexpr int kIdDraws =
    8;  // Of 16 million ids per display name; all taken means something else is wrong.

// Below it a dataset is prepared within seconds: it never waits for a larger one.
constexpr int64_t kSmallDatasetBytes = int64_t{64} << 20;

// All that the slow work needs, copied: the scheduler's entry may be gone when it runs.
struct ReadyWork {
  JobRecord record;
  std::vector<Device> devices;
  InHand* in_hand = nullptr;
  Inspector* inspector = nullptr;
  std::string checkpoints_dir;
  std::string parents_checkpoints_dir;  // Of a job that extends another.
  Readiness::Abandoned abandoned;
  std::function<void(const std::string&)> say;
};

// What the job's files say; of one that is new, also whether any device can hold it.
absl::StatusOr<CheckedJob> CheckFiles(const ReadyWork& work, const JobIndex& index) {
  const bool prepared = !work.record.train_data.empty();
  const Principal owner = OwnerOf(work.record.job);
  ASSIGN_OR_RETURN(
      CheckedJob checked,
      work.inspector->Check(work.record.job.spec(),
                            [&](const std::string& id) { return index.FinishedModel(id, owner); },
                            {.who = owner,
                             .inputs = prepared ? InputFiles::kDone : InputFiles::kNeeded,
                             .cancelled = work.abandoned.get(),
                             .on_read = [&] {
                               if (!prepared) work.say("its files are being checked");
                             }}));
  const InHand::Hold hold(*work.in_hand, work.record.id());
  if (prepared) return checked;
  RETURN_IF_ERROR(FillAutoLength(work.devices, checked));
  RETURN_IF_ERROR(CheckFits(work.devices, checked, RowLengths()));
  return checked;
}

// From its own newest checkpoint; a job that extends another, and has none, from that one's.
absl::StatusOr<std::optional<CheckpointRecord>> WhereToGoOn(const ReadyWork& work) {
  const v1::Job& job = work.record.job;
  if (job.epoch() > 0) {
    ASSIGN_OR_RETURN(CheckpointScan scan, FindNewest(job.id(), work.checkpoints_dir));
    if (scan.newest) return std::move(scan.newest);
  }
  if (job.extends_step() == 0) return std::nullopt;
  return FindAt(job.parent_job(), work.parents_checkpoints_dir, job.extends_step());
}

// Whose prepared data would be the same, were prepared at once for nothing.
std::string PreparesAlike(const v1::JobSpec& spec) {
  return absl::StrCat(SourcesKey(spec), spec.model());
}

absl::StatusOr<ReadyJob> MakeReady(const ReadyWork& work, const JobIndex& index,
                                   Preparer& preparer) {
  const JobRecord& record = work.record;
  const bool prepared = !record.train_data.empty();
  ReadyJob ready;
  ASSIGN_OR_RETURN(ready.checked, CheckFiles(work, index));
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
  const InHand::Hold hold(*work.in_hand, record.id());
  ASSIGN_OR_RETURN(const auto facts, preparer.FactsOf(ready.folders));
  ready.summary = facts->summary;
  const RowLengths& lengths = facts->lengths;
  if (!ready.folders.eval.empty()) ready.summary.set_eval_rows(lengths.eval.rows);
  RETURN_IF_ERROR(FillAutoBatch(work.devices, lengths, ready.checked));
  RETURN_IF_ERROR(CheckFits(work.devices, ready.checked, lengths));
  ASSIGN_OR_RETURN(ready.plans, PlansByShare(work.devices, ready.checked, lengths));
  ready.checked.program = nullptr;  // Planned: nothing needs it any more, and it is large.
  ASSIGN_OR_RETURN(ready.resume, WhereToGoOn(work));
  return ready;
}

// It goes on behind its parent's checkpoint, on the data that this one was prepared from.
void BeginBehind(const Extension& extends, JobRecord& record) {
  record.train_data = extends.train_data;
  record.eval_data = extends.eval_data;
  record.job.set_extends_step(extends.step);
  *record.job.mutable_dataset() = extends.dataset;
  v1::Progress& progress = *record.job.mutable_progress();
  progress.set_global_step(extends.step);
  progress.set_max_steps(record.job.spec().training().max_steps());
}

// Of a job that was in the daemon's hands whenever that ended of late: somebody has to look.
std::string HeldReason() {
  return absl::StrCat("held: the daemon ended ", kMaxEndsInHand, " times while it was at work on ",
                      "this job; cancel it, and see the daemon's log");
}

// A job that is ready, and what is stored of it.
struct Admission {
  ReadyJob ready;
  JobRecord changed;
  Change change;
};

absl::StatusOr<Admission> AdmissionOf(const Entry& entry, ReadyJob ready, StoredPlans& plans) {
  Admission made{.ready = std::move(ready), .changed = entry.record, .change = {}};
  if (entry.state() == v1::Job::PREPARING) {
    *made.changed.job.mutable_spec() = made.ready.checked.spec;
    made.changed.train_data = made.ready.folders.train;
    made.changed.eval_data = made.ready.folders.eval;
    *made.changed.job.mutable_dataset() = made.ready.summary;
    made.change.spec = true;
    RETURN_IF_ERROR(
        MoveJob(made.changed, v1::Job::QUEUED, "waits to be placed", WallMicros(), made.change));
  }
  made.change.plans = plans.Pack(made.ready);
  made.ready.plans = plans.Share(made.ready.plans, *made.change.plans);
  return made;
}

}  // namespace

void Scheduler::Create(CreateOrder order, Reply reply) {
  if (draining_) return reply(Draining());
  const bool posted = inbox_.TryPost([this, order = std::move(order), reply]() mutable {
    DoCreate(std::move(order), reply, kIdDraws);
  });
  if (!posted) reply(QueueFull("waiting requests", kMaxInboxTasks));
}

// The store says whether the request or the id is known: it is the only one that knows them all.
void Scheduler::DoCreate(CreateOrder order, const Reply& reply, int draws_left) {
  const int64_t now_us = WallMicros(), limit = settings_.limits.max_live_jobs;
  if (static_cast<int64_t>(entries_.size()) + storing_ >= limit)
    return reply(QueueFull("jobs that have not ended", limit));
  if (const absl::Status may = tenant_use_.MayCreate(order); !may.ok()) return reply(may);
  // Its parent's may have been removed since it was looked for.
  if (order.extends.step > 0 &&
      !std::filesystem::exists(CheckpointsDir(settings_.launcher.state_dir, order.parent_job)))
    return reply(WrongState(order.parent_job, "extend", "without checkpoints by now"));
  const v1::JobSpec& spec = order.spec;
  auto made = std::make_shared<NewJob>();
  made->record.order = next_order_++;
  v1::Job& job = made->record.job;
  job.set_id(order.job_id.empty() ? NewJobId(spec.display_name()) : order.job_id);
  job.set_name(absl::StrCat("tenants/", TenantOf(order.owner), "/jobs/", job.id()));
  job.set_display_name(spec.display_name().empty() ? job.id() : spec.display_name());
  job.set_state(v1::Job::PREPARING);
  job.set_reason(kWaitsToBePrepared);
  job.set_priority(spec.priority());
  *job.mutable_labels() = spec.labels();
  job.set_parent_job(order.parent_job);
  job.mutable_plan_changes();
  job.set_owner(order.owner);
  *job.mutable_spec() = spec;
  if (order.extends.step > 0) BeginBehind(order.extends, made->record);
  *job.mutable_create_time() = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(now_us);
  made->event = {
      .job = job.id(), .to = v1::Job::PREPARING, .reason = job.reason(), .wall_us = now_us};
  if (!order.request_id.empty())
    made->request =
        RequestRecord{order.request_id, order.body_sha256, job.id(),
                      now_us + absl::ToInt64Microseconds(settings_.limits.request_memory)};
  ++storing_;
  tenant_use_.Enter(order.owner);
  auto kept = std::make_shared<CreateOrder>(std::move(order));
  store_.Create(made, [this, kept, reply, draws_left](const std::shared_ptr<NewJob>& job,
                                                      const absl::Status& status) {
    inbox_.PostResult([this, job, kept, reply, draws_left, status] {
      --storing_;
      if (!status.ok() || job->known) tenant_use_.Leave(kept->owner);
      if (absl::IsAlreadyExists(status) && kept->job_id.empty() && draws_left > 1)
        return DoCreate(std::move(*kept), reply, draws_left - 1);
      if (absl::IsAlreadyExists(status)) return reply(JobExists(job->record.id()));
      status.ok() ? OnCreated(job, std::move(*kept), reply) : reply(status);
    });
  });
}

void Scheduler::OnCreated(const std::shared_ptr<NewJob>& job, CreateOrder order,
                          const Reply& reply) {
  if (job->known) {
    if (job->known->body_sha256 != order.body_sha256)
      return reply(RequestIdReused(order.request_id, job->known->job));
    absl::StatusOr<JobPtr> known = index_.Find(job->known->job);
    return known.ok() ? reply(**known) : reply(known.status());
  }
  auto entry = std::make_unique<Entry>();
  entry->record = std::move(job->record);
  entry->counted_steps = entry->record.job.progress().global_step();
  const std::string id = entry->id();
  spdlog::info("job {}: new, \"{}\"", id, entry->record.job.display_name());
  metrics_.CountJobs(v1::Job::PREPARING, 1);
  AwaitReady(*entry);
  Show(*entry);
  reply(entry->record.job);
  entries_[id] = std::move(entry);
}

void Scheduler::AwaitReady(Entry& entry) {
  unready_.Add(KeyOf(entry.record), entry.record.job.owner());
}

// Until a pool takes no more, or of a user no more: the rest is for the next tick.
void Scheduler::GetSomeReady() {
  const auto room_of = [&](const std::string& user) {
    const size_t limit = settings_.limits.waiting_of_a_user;
    return limit - std::min(limit, prepares_.WaitingOf(user));
  };
  pools_full_ = unready_.Visit(room_of, [&](const std::string& id) { return GetReadyIfDue(id); });
}

Unready::Answer Scheduler::GetReadyIfDue(const std::string& id) {
  Entry* entry = Find(id);
  const bool needed = entry != nullptr && entry->attempt == nullptr && entry->ready() == nullptr &&
                      entry->readiness.state() != Readiness::State::kUnderWay &&
                      !HasAttempt(entry->state()) && entry->state() != v1::Job::PAUSED;
  if (!needed) return Unready::Answer::kDone;
  if (!entry->readiness.IsDue(SinceBoot())) return Unready::Answer::kLater;
  if (entry->state() == v1::Job::PREPARING &&
      prepares_.WaitingOf(entry->record.job.owner()) >= settings_.limits.waiting_of_a_user)
    return Unready::Answer::kUserFull;
  GetReady(*entry);
  const bool begun = entry->readiness.state() == Readiness::State::kUnderWay;
  return begun || entry->state() == v1::Job::PAUSED ? Unready::Answer::kDone
                                                    : Unready::Answer::kAllFull;
}

// Slow: on a pool. Answers through the inbox, unless the job has gone meanwhile.
void Scheduler::GetReady(Entry& entry) {
  const std::string id = entry.id();
  if (in_hand_.IsSuspect(id)) {
    const absl::Status held = Move(entry, v1::Job::PAUSED, HeldReason(), {});
    if (!held.ok()) return spdlog::error("job {}: {}", id, held.message());
    return in_hand_.Forget(id);
  }
  ReadyWork work{.record = entry.record,
                 .devices = ledger_.devices(),
                 .in_hand = &in_hand_,
                 .inspector = &settings_.inspector,
                 .checkpoints_dir = CheckpointsDir(settings_.launcher.state_dir, id),
                 .parents_checkpoints_dir =
                     CheckpointsDir(settings_.launcher.state_dir, entry.record.job.parent_job()),
                 .abandoned = entry.readiness.Begin()};
  work.say = [this, id, abandoned = work.abandoned](const std::string& progress) {
    Post([this, id, abandoned, progress] {
      Entry* entry = abandoned->load() ? nullptr : Find(id);
      if (entry == nullptr || entry->state() != v1::Job::PREPARING) return;
      entry->record.job.set_reason(progress);
      Show(*entry);
    });
  };
  const v1::JobSpec& spec = entry.record.job.spec();
  FairWork turn{.user = entry.record.job.owner(),
                .key = PreparesAlike(spec),
                .priority = entry.record.job.priority(),
                .abandoned = work.abandoned};
  const bool new_job = entry.state() == v1::Job::PREPARING;
  Task make = [this, id, work = std::move(work)] {
    if (work.abandoned->load()) return;
    auto ready = std::make_shared<absl::StatusOr<ReadyJob>>(MakeReady(work, index_, preparer_));
    Post([this, id, ready, abandoned = work.abandoned] {
      made_ready_.push_back({id, std::move(*ready), abandoned});
    });
  };
  if (!new_job) {
    if (!pool_.Post(std::move(make))) entry.readiness.Reset();
    return;
  }
  // Asking the file system for a size may take as long as it likes, so that is for a pool, too.
  turn.run = std::move(make);
  const bool begun = pool_.Post([this, spec, turn = std::move(turn)]() mutable {
    turn.small = DatasetBytes(spec) < kSmallDatasetBytes;
    prepares_.Post(std::move(turn));
  });
  if (!begun) entry.readiness.Reset();
}

void Scheduler::OnReady(std::vector<ReadyResult> results) {
  std::list<Admission> admissions;  // Changes point into it.
  std::vector<const Change*> changes;
  for (ReadyResult& result : results) {
    Entry* entry = Find(result.id);
    if (entry == nullptr || !entry->readiness.Awaits(result.run)) continue;
    if (!result.ready.ok() && Hold(*entry, result.ready.status())) continue;
    if (!result.ready.ok()) {
      const absl::Status failed = FailJob(*entry, ToJobError(result.ready.status()));
      if (!failed.ok()) StartOver(*entry, failed);
      continue;
    }
    absl::StatusOr<Admission> admission =
        AdmissionOf(*entry, *std::move(result.ready), stored_plans_);
    if (!admission.ok()) {
      StartOver(*entry, admission.status());
      continue;
    }
    admissions.push_back(*std::move(admission));
    admissions.back().change.job = &admissions.back().changed;
    changes.push_back(&admissions.back().change);
  }
  if (changes.empty()) return;
  std::vector<absl::Status> stored = store_.CommitAll(changes);
  for (size_t i = 0; i < stored.size(); ++i, admissions.pop_front()) {
    Admission& admission = admissions.front();
    Entry& entry = *Find(admission.changed.job.id());
    if (!stored[i].ok()) {
      StartOver(entry, stored[i]);
      continue;
    }
    OnSaved(entry, std::move(admission.changed), admission.change);
    entry.readiness.Finish(std::move(admission.ready));
    Judge(entry);
  }
}

void Scheduler::StartOver(Entry& entry, const absl::Status& why) {
  spdlog::error("job {}: {}", entry.id(), why.message());
  entry.readiness.Hold(SinceBoot());
  AwaitReady(entry);
}

// What may pass is waited for: the job stays where it is, says why, and is made ready again later.
bool Scheduler::Hold(Entry& entry, const absl::Status& why) {
  const absl::Duration now = SinceBoot();
  const bool away = !IsTransient(why) || MayPass(why);  // A file; room and the like come back.
  if (!MayComeBack(why) || (away && entry.readiness.HeldFor(now) > settings_.limits.files_away))
    return false;
  const absl::Duration pause = entry.readiness.Hold(now);
  AwaitReady(entry);
  entry.record.job.set_reason(absl::StrCat("is held: ", why.message(), "; tries again in ",
                                           absl::ToInt64Seconds(pause), " s"));
  spdlog::warn("job {}: {}", entry.id(), entry.record.job.reason());
  if (entry.state() == v1::Job::QUEUED) Enqueue(entry);
  Show(entry);
  return true;
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
