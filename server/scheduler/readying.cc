#include "server/scheduler/readying.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/job_origins.h"
#include "server/data/held_files.h"
#include "server/data/prompts.h"
#include "server/data/sources.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/job/transient.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/auto_memory.h"
#include "server/scheduler/auto_sizes.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/conclusion.h"
#include "server/scheduler/core.h"
#include "server/scheduler/device_plans.h"

namespace snug::server {

// All that the slow work needs, copied: the scheduler's entry may be gone when it runs.
struct ReadyWork {
  JobRecord record;  // Of one of those that are alike.
  std::vector<Device> devices;
  InHand* in_hand = nullptr;
  Inspector* inspector = nullptr;
  std::string state_dir;
  std::string alike;                        // Their key.
  std::vector<LikeJobs::Member> jobs = {};  // Once it has begun.
};

// A job that is ready, and what is stored of it.
struct ReadyStep {
  Entry& entry;
  SharedReady ready;
  std::optional<CheckpointRecord> resume;
  JobStep step;
};

// On their way into the store; nothing else happens to their jobs before they are there.
struct ReadySteps {
  std::vector<ReadyStep> steps;  // Changes point into them.
  std::vector<absl::Status> results;
  absl::Notification stored;  // Then the results are there.
};

namespace {

// Below it a dataset is prepared within seconds: it never waits for a larger one.
constexpr int64_t kSmallDatasetBytes = int64_t{64} << 20;
// What is packed counts as so many times its bytes: gzip and Zstandard make texts 3 to 10 times
// smaller. What they make smaller still ends at SchedulerLimits::small_dataset.
constexpr int64_t kPackedFactor = 16;
constexpr const char* kPacked[] = {".gz", ".zst", ".zstd", ".parquet", ".arrow"};
constexpr const char* kTakesLong =
    "waits to be prepared among large datasets: it takes longer than small ones do";

// In whose name the work is done, and for whom.
struct ReadyFor {
  const LikeJobs::Member& job;
  std::vector<std::string> alike;  // Itself among them.
  std::function<void(const std::string& progress)> say;
  absl::Duration until;  // By SinceBoot().
};

bool IsPacked(const SourceFile& file) {
  const std::string name = absl::AsciiStrToLower(file.path);
  return std::any_of(std::begin(kPacked), std::end(kPacked),
                     [&](const char* suffix) { return absl::EndsWith(name, suffix); });
}

std::vector<std::string> KeysOf(const std::vector<LikeJobs::Member>& members) {
  std::vector<std::string> keys;
  for (const LikeJobs::Member& member : members) keys.push_back(member.job);
  return keys;
}

// What the job's files say; of one that is new, also whether any device can hold it.
absl::StatusOr<CheckedJob> CheckFiles(const ReadyWork& work, const ReadyFor& whom,
                                      const JobIndex& index) {
  const bool prepared = !work.record.train_data.empty();
  const Principal owner = OwnerOf(work.record.job);
  ASSIGN_OR_RETURN(
      CheckedJob checked,
      work.inspector->Check(
          work.record.job.spec(), JobOrigins(index, work.state_dir, owner),
          {.who = owner,
           .inputs = prepared ? InputFiles::kDone : InputFiles::kNeeded,
           .cancelled = whom.job.run.get(),
           .on_read =
               [&] {
                 if (!prepared) whom.say("its files are being checked");
               },
           .hold = [&] { return std::make_shared<InHand::Hold>(*work.in_hand, whom.alike); }}));
  if (prepared) return checked;
  const InHand::Hold hold(*work.in_hand, whom.alike);
  RETURN_IF_ERROR(FillAutoLength(work.devices, checked));
  RETURN_IF_ERROR(CheckFits(work.devices, checked, RowLengths()));
  return checked;
}

// From its own newest checkpoint; a job that extends another, and has none, from that one's.
absl::StatusOr<std::optional<CheckpointRecord>> WhereToGoOn(const ReadyWork& work,
                                                            const JobIndex& index) {
  const v1::Job& job = work.record.job;
  if (job.epoch() > 0) {
    ASSIGN_OR_RETURN(CheckpointScan scan,
                     FindNewest(KeyOf(job), CheckpointsDir(work.state_dir, KeyOf(job))));
    if (scan.newest) return std::move(scan.newest);
  }
  if (job.extends_step() == 0) return std::nullopt;
  ASSIGN_OR_RETURN(const JobPtr parent, index.Search(ParentOf(job), DaemonPrincipal()));
  return FindAt(KeyOf(*parent), CheckpointsDir(work.state_dir, KeyOf(*parent)), job.extends_step());
}

// Whose prepared data would be the same, were prepared at once for nothing. A template of another's
// is another matter: it may never end.
std::string PreparesAlike(const v1::JobSpec& spec) {
  return absl::StrCat(SourcesKey(spec), spec.model(), "\n", spec.chat_template());
}

absl::StatusOr<ReadyResult> MakeReady(const ReadyWork& work, const ReadyFor& whom,
                                      const JobIndex& index, Preparer& preparer) {
  const JobRecord& record = work.record;
  const bool prepared = !record.train_data.empty();
  ReadyResult result;
  ReadyJob& ready = result.job;
  ASSIGN_OR_RETURN(ready.checked, CheckFiles(work, whom, index));
  if (prepared) {
    ready.folders = {.train = record.train_data,
                     .eval = record.eval_data,
                     .prompts = PromptsFile(ready.checked.spec, record.train_data),
                     .ready = true};
  } else {
    ASSIGN_OR_RETURN(
        ready.folders,
        preparer.Prepare(ready.checked.spec, ready.checked.model_dir,
                         {.cancelled = whom.job.run.get(),
                          .say = whom.say,
                          .until = whom.until,
                          .reach = work.inspector->access().ReachOf(OwnerOf(work.record.job))}));
  }
  const InHand::Hold hold(*work.in_hand, whom.alike);
  ASSIGN_OR_RETURN(const auto facts, preparer.FactsOf(ready.folders));
  ready.summary = facts->summary;
  const RowLengths& lengths = facts->lengths;
  if (!ready.folders.eval.empty()) ready.summary.set_eval_rows(lengths.eval.rows);
  RETURN_IF_ERROR(FillAutoBatch(work.devices, lengths, ready.checked));
  RETURN_IF_ERROR(FillAutoMemory(work.devices, lengths, ready.checked));
  RETURN_IF_ERROR(CheckFits(work.devices, ready.checked, lengths));
  ASSIGN_OR_RETURN(ready.plans, PlansByShare(work.devices, ready.checked, lengths));
  ready.checked.program = nullptr;  // Planned: nothing needs it any more, and it is large.
  ASSIGN_OR_RETURN(result.resume, WhereToGoOn(work, index));
  // What its inputs gave is in the spec; it still begins with it.
  if (prepared && !result.resume) {
    const JobOrigins origins(index, work.state_dir, OwnerOf(record.job));
    ASSIGN_OR_RETURN(const AdapterOrigin adapter, AdapterOriginOf(ready.checked.spec, origins));
    if (!adapter.dir.empty() || !adapter.checkpoint.empty())
      RETURN_IF_ERROR(work.inspector->OpenAdapter(adapter, OwnerOf(record.job), ready.checked));
  }
  return result;
}

// Of a job that was in the daemon's hands whenever that ended of late: somebody has to look.
std::string HeldReason() {
  return absl::StrCat("held: the daemon ended ", kMaxEndsInHand, " times while it was at work on ",
                      "this job; cancel it, and see the daemon's log");
}

// Who may have so many jobs at a time prepared. One that has been prepared is waited for by the
// whole queue: it falls under nobody's limit.
std::string LimitedUserOf(const Entry& entry) {
  return entry.state() == v1::Job::STATE_PREPARING ? entry.record.job.owner() : std::string();
}

}  // namespace

bool IsSmallDataset(const v1::JobSpec& spec, const Reach& reach) {
  const std::vector<SourceFile> files = DatasetFiles(spec, reach);
  int64_t bytes = 0;
  for (const SourceFile& file : files) {
    const absl::StatusOr<struct stat> about = StatFor(file.path, reach);
    if (about.ok()) bytes += about->st_size;
  }
  if (bytes < kSmallDatasetBytes / kPackedFactor) return true;
  return bytes < kSmallDatasetBytes && std::none_of(files.begin(), files.end(), IsPacked);
}

Readying::Readying(SchedulerCore& core, const SchedulerSettings& settings, Preparer& preparer)
    : core_(core),
      preparer_(preparer),
      stored_plans_(settings.devices),
      prepares_(settings.prepares) {
  preparer_.AllowAtATime(settings.prepares.any + settings.prepares.small);
}

void Readying::GoOn() {
  StoreReady();
  if (SinceBoot() >= NextBeginning()) GetSomeReady();
}

void Readying::StoreReady() {
  if (!made_ready_.empty() && storing_ == nullptr) StoreSteps(std::exchange(made_ready_, {}));
}

absl::Duration Readying::NextBeginning() const {
  if (pools_full_ || !look_at_unready_) return absl::InfiniteDuration();
  return last_beginning_ + core_.settings.limits.between_beginnings;
}

void Readying::OnTick() {
  pools_full_ = false;
  look_at_unready_ = true;
}

void Readying::Await(const Entry& entry) {
  look_at_unready_ = true;
  unready_.Add(PlaceInLine(entry.record), LimitedUserOf(entry));
}

void Readying::Forget(const Entry& entry) {
  unready_.Remove(PlaceInLine(entry.record), LimitedUserOf(entry));
}

// Until a pool takes no more, or of a user no more: the rest is for the next tick.
void Readying::GetSomeReady() {
  look_at_unready_ = false;
  const auto room_of = [&](const std::string& user) {
    const size_t limit = core_.settings.limits.waiting_of_a_user;
    return limit - std::min(limit, prepares_.WaitingOf(user));
  };
  pools_full_ = unready_.Visit(SinceBoot(), room_of,
                               [&](const std::string& key) { return GetReadyIfDue(key); });
}

Unready::Answer Readying::GetReadyIfDue(const std::string& key) {
  Entry* entry = core_.Find(key);
  const bool needed = entry != nullptr && entry->attempt == nullptr && entry->ready() == nullptr &&
                      entry->readiness.state() != Readiness::State::kUnderWay &&
                      !HasAttempt(entry->state()) && entry->state() != v1::Job::STATE_PAUSED;
  if (!needed) return Unready::Answer::kDone;
  if (!entry->readiness.IsDue(SinceBoot()))
    return {Unready::Answer::kLater, entry->readiness.due()};
  if (entry->state() == v1::Job::STATE_PREPARING &&
      prepares_.WaitingOf(entry->record.job.owner()) >= core_.settings.limits.waiting_of_a_user)
    return Unready::Answer::kUserFull;
  GetReady(*entry);
  const bool begun = entry->readiness.state() == Readiness::State::kUnderWay;
  return begun || entry->state() == v1::Job::STATE_PAUSED ? Unready::Answer::kDone
                                                          : Unready::Answer::kAllFull;
}

// Slow: on a pool. Answers through the inbox, unless the job has gone meanwhile.
void Readying::GetReady(Entry& entry) {
  const std::string key = entry.key(), alike = AlikeKey(entry.record);
  if (core_.in_hand.IsSuspect(key)) {
    const absl::Status held = core_.Apply(entry, HeldBack{HeldReason()}).status();
    if (!held.ok()) return spdlog::error("job {}: {}", key, held.message());
    return core_.in_hand.Forget(key);
  }
  const v1::Job& job = entry.record.job;
  last_beginning_ = SinceBoot();
  if (!like_jobs_.Add(alike, {key, entry.readiness.Begin()})) return;
  const auto work = std::make_shared<ReadyWork>(ReadyWork{.record = entry.record,
                                                          .devices = core_.ledger.devices(),
                                                          .in_hand = &core_.in_hand,
                                                          .inspector = &core_.settings.inspector,
                                                          .state_dir = core_.settings.state_dir,
                                                          .alike = alike});
  FairWork turn{.user = job.owner(), .key = PreparesAlike(job.spec()), .priority = job.priority()};
  const bool new_job = entry.state() == v1::Job::STATE_PREPARING;
  Task make = [this, work] { MakeAllReady(*work, absl::InfiniteDuration()); };
  bool begun = false;
  if (new_job) {
    // Asking the file system for a size may take as long as it likes, so that is for a pool, too.
    turn.run = std::move(make);
    turn.run_briefly = [this, work, brief = core_.settings.limits.small_dataset] {
      return MakeAllReady(*work, SinceBoot() + brief);
    };
    begun = core_.pool.Post([this, work, turn = std::move(turn)]() mutable {
      const Reach reach = work->inspector->access().ReachOf(OwnerOf(work->record.job));
      turn.small = IsSmallDataset(work->record.job.spec(), reach);
      prepares_.Post(std::move(turn));
    });
  } else {
    begun = core_.pool.Post(std::move(make));
  }
  if (begun) return;
  like_jobs_.Take(alike);
  entry.readiness.Withdraw();
}

// In the name of the first that somebody still waits for: one that is cancelled meanwhile takes
// none of the others with it.
bool Readying::MakeAllReady(ReadyWork& work, absl::Duration until) {
  if (work.jobs.empty()) work.jobs = like_jobs_.Take(work.alike);
  // On these no work is done: what is known of their ends in hand stays.
  std::erase_if(work.jobs, [](const LikeJobs::Member& job) { return job.run->load(); });
  if (work.jobs.empty()) return true;
  auto group = std::make_shared<ReadyGroup>(work.jobs, absl::CancelledError("cancelled"));
  for (const LikeJobs::Member& job : group->jobs) {
    if (job.run->load()) continue;
    const ReadyFor whom = {
        .job = job, .alike = KeysOf(group->jobs), .say = Saying(job), .until = until};
    group->result = MakeReady(work, whom, core_.index, preparer_);
    if (!job.run->load()) break;
  }
  if (!group->result.ok() && SinceBoot() >= until) {
    for (const LikeJobs::Member& job : work.jobs) Saying(job)(kTakesLong);
    return false;
  }
  core_.Post([this, group] { made_ready_.push_back(std::move(*group)); });
  return true;
}

std::function<void(const std::string&)> Readying::Saying(const LikeJobs::Member& member) {
  return [this, key = member.job, run = member.run](const std::string& progress) {
    core_.Post([this, key, run, progress] {
      Entry* entry = run->load() ? nullptr : core_.Find(key);
      if (entry == nullptr || entry->state() != v1::Job::STATE_PREPARING) return;
      entry->record.job.set_reason(progress);
      core_.Show(*entry);
    });
  };
}

// What follows for all that were made ready is stored together; the scheduler goes on meanwhile.
void Readying::StoreSteps(std::vector<ReadyGroup> groups) {
  const auto steps = std::make_shared<ReadySteps>();
  for (ReadyGroup& group : groups) DecideAll(group, steps->steps);
  if (steps->steps.empty()) return;
  std::vector<Change> changes;
  for (const ReadyStep& made : steps->steps) {
    made.entry.storing = true;
    changes.push_back(made.step.ToChange());
  }
  storing_ = steps;
  core_.store.CommitAll(std::move(changes), [this, steps](std::vector<absl::Status> results) {
    steps->results = std::move(results);
    core_.inbox.PostResult([this, steps] { OnStored(steps); });
    steps->stored.Notify();  // The last: once Settle goes on, the scheduler may end.
  });
}

void Readying::Settle(const std::string& key) {
  const Entry* entry = core_.Find(key);
  if (entry == nullptr || !entry->storing) return;
  storing_->stored.WaitForNotification();
  OnStored(storing_);
}

void Readying::OnStored(std::shared_ptr<ReadySteps> all) {
  if (storing_ != all) return;  // Settled.
  storing_.reset();
  const ReadyJob* judged = nullptr;  // Jobs that share one fit, or do not, alike.
  bool fits = true;
  for (size_t i = 0; i < all->steps.size(); ++i) {
    ReadyStep& made = all->steps[i];
    made.entry.storing = false;
    if (!all->results[i].ok()) {
      StartOver(made.entry, all->results[i]);
      continue;
    }
    // It queues with its plans.
    made.entry.readiness.Finish(std::move(made.ready), std::move(made.resume));
    core_.OnStored(made.entry, std::move(made.step));
    if (std::exchange(judged, made.entry.ready()) != made.entry.ready())
      fits = core_.admission.Fits(made.entry);
    if (!fits) core_.admission.Refuse(made.entry);
  }
}

// What follows for each of a group that still waits for it.
void Readying::DecideAll(ReadyGroup& group, std::vector<ReadyStep>& steps) {
  SharedReady ready;
  std::shared_ptr<const PlansRecord> plans;
  if (group.result.ok()) {
    ReadyJob& job = group.result->job;
    plans = stored_plans_.Pack(job);
    job.plans = stored_plans_.Share(job.plans, *plans);
    ready = std::make_shared<const ReadyJob>(std::move(job));
  }
  for (const LikeJobs::Member& member : group.jobs) {
    Entry* entry = core_.Find(member.job);
    core_.in_hand.Forget(member.job);
    if (entry == nullptr || !entry->readiness.Awaits(member.run)) continue;
    if (ready == nullptr) {
      if (!Hold(*entry, group.result.status())) GiveUp(*entry, group.result.status());
      continue;
    }
    absl::StatusOr<JobStep> step = core_.Decide(*entry, MadeReady{*ready, plans});
    if (step.ok())
      steps.push_back({*entry, ready, group.result->resume, *std::move(step)});
    else
      StartOver(*entry, step.status());
  }
}

void Readying::GiveUp(Entry& entry, const absl::Status& why) {
  const absl::Status status = core_.Apply(entry, Refused{ToJobError(why)}).status();
  if (!status.ok()) StartOver(entry, status);
}

void Readying::StartOver(Entry& entry, const absl::Status& why) {
  spdlog::error("job {}: {}", entry.key(), why.message());
  entry.readiness.TryAgain(SinceBoot());
  Await(entry);
}

// What may pass is waited for: the job stays where it is, says why, and is made ready again later.
bool Readying::Hold(Entry& entry, const absl::Status& why) {
  const absl::Duration now = SinceBoot();
  const bool away = !IsTransient(why) || MayPass(why);  // A file; room and the like come back.
  if (!MayComeBack(why) ||
      (away && entry.readiness.HeldFor(now) > core_.settings.limits.files_away))
    return false;
  const absl::Duration pause = entry.readiness.Hold(now);
  Await(entry);
  entry.record.job.set_reason(absl::StrCat("is held: ", why.message(), "; tries again in ",
                                           absl::ToInt64Seconds(pause), " s"));
  spdlog::warn("job {}: {}", entry.key(), entry.record.job.reason());
  if (entry.state() == v1::Job::STATE_QUEUED) core_.admission.Enqueue(entry);
  core_.Show(entry);
  return true;
}

}  // namespace snug::server
