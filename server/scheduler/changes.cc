#include "server/scheduler/changes.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "server/job/check_labels.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/removal.h"
#include "server/scheduler/reports.h"
#include "server/scheduler/trash.h"

namespace snug::server {
namespace {

constexpr const char* kIsBeingCancelled = "is being cancelled";
constexpr const char* kKeep = "cancel and keep";
constexpr const char* kLabel = "labels.";

absl::Status SetPriority(int32_t priority, v1::Job& job) {
  if (IsTerminal(job.state()))
    return WrongState(job.id(), "change the priority of", NameOf(job.state()));
  if (std::abs(int64_t{priority}) > kMaxPriority)
    return InvalidRequest(
        {{"priority", absl::StrCat(priority, " is outside -", kMaxPriority, " to ", kMaxPriority),
          "BAD_FIELD"}});
  job.set_priority(priority);
  return absl::OkStatus();
}

// What the mask names, and only that: "*" stands for all that there is.
absl::Status ApplyPath(const v1::UpdateJobRequest& request, absl::string_view path, v1::Job& job) {
  const bool all = path == "*";
  // An ended job's priority can stay as it is.
  if (path == "priority" || (all && request.priority() != job.priority()))
    RETURN_IF_ERROR(SetPriority(request.priority(), job));
  if (path == "labels" || all) *job.mutable_labels() = request.labels();
  if (path == "priority" || path == "labels" || all) return absl::OkStatus();
  const std::string key(absl::StripPrefix(path, kLabel));
  if (key.size() == path.size() || key.empty())
    return InvalidRequest({{"update_mask",
                            absl::StrCat("\"", path, "\" cannot be updated: priority, labels, ",
                                         kLabel, "KEY and * can"),
                            "BAD_FIELD"}});
  const auto given = request.labels().find(key);
  if (given == request.labels().end())
    job.mutable_labels()->erase(key);
  else
    (*job.mutable_labels())[key] = given->second;
  return absl::OkStatus();
}

absl::Status Apply(const v1::UpdateJobRequest& request, v1::Job& job) {
  const auto& paths = request.update_mask().paths();
  if (!paths.empty() && !request.remove_labels().empty())
    return InvalidRequest(
        {{"remove_labels", "has to be empty where update_mask says what changes", "BAD_FIELD"}});
  for (const std::string& path : paths) RETURN_IF_ERROR(ApplyPath(request, path, job));
  if (paths.empty()) {
    if (request.has_priority()) RETURN_IF_ERROR(SetPriority(request.priority(), job));
    for (const std::string& key : request.remove_labels()) job.mutable_labels()->erase(key);
    for (const auto& [key, value] : request.labels()) (*job.mutable_labels())[key] = value;
  }
  return CheckLabels("labels", job.labels());
}

absl::Status CancelAtOnce(JobRecord& job, Change& change) {
  job.job.set_keep(false);  // An export that is under way is not waited for any more.
  if (!HasAttempt(job.state()))
    return MoveJob(job, v1::Job::STATE_CANCELLED, "cancelled", WallMicros(), change);
  if (job.state() != v1::Job::STATE_CANCELLING)
    return MoveJob(job, v1::Job::STATE_CANCELLING, kIsBeingCancelled, WallMicros(), change);
  job.job.set_reason(kIsBeingCancelled);
  return absl::OkStatus();
}

// Its worker has as long for the export as any has at the end of a run.
absl::Status CancelAndKeep(JobRecord& job, Change& change) {
  const JobState state = job.state();
  if (state == v1::Job::STATE_CANCELLING && job.job.keep()) return absl::OkStatus();
  if (!HasAttempt(state) && !HasTrained(job.job)) return CancelAtOnce(job, change);
  if (state != v1::Job::STATE_STARTING && state != v1::Job::STATE_RUNNING)
    return WrongState(job.id(), kKeep, absl::StrCat(NameOf(state), ", and does not train"));
  job.job.set_keep(true);
  return MoveJob(job, v1::Job::STATE_CANCELLING, "its worker exports what there is", WallMicros(),
                 change);
}

// Whether `other` reads what `id` has made.
bool GoesOnFrom(const v1::Job& other, const std::string& id) {
  const bool extends = other.extends_step() > 0 && other.parent_job() == id;
  return extends || BeginsWith(other.spec(), id);
}

}  // namespace

absl::StatusOr<v1::Job> JobChanger::Cancel(const v1::CancelJobRequest& request) {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(request.id()));
  const bool keep = request.keep();
  Entry* entry = core_.Find(job->id());
  if (entry == nullptr && job->state() == v1::Job::STATE_CANCELLED && (job->keep() || !keep))
    return *job;
  if (entry == nullptr) return WrongState(job->id(), keep ? kKeep : "cancel", NameOf(job->state()));
  JobRecord changed = entry->record;
  Change change;
  RETURN_IF_ERROR(keep ? CancelAndKeep(changed, change) : CancelAtOnce(changed, change));
  RETURN_IF_ERROR(core_.Save(*entry, std::move(changed), std::move(change), Urgency::kMustLand));
  v1::Job cancelled = entry->record.job;
  if (cancelled.keep()) core_.attempts.TellToStop(*entry);
  if (IsTerminal(entry->state())) core_.Drop(entry->id());
  return cancelled;
}

// A worker that is not linked now is told when it says Hello; one that hangs is ended like any.
absl::StatusOr<v1::Job> JobChanger::Pause(const std::string& id) {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(id));
  Entry* entry = core_.Find(job->id());
  if (entry == nullptr || entry->state() == v1::Job::STATE_CANCELLING)
    return WrongState(job->id(), "pause", NameOf(job->state()));
  const bool runs =
      entry->state() == v1::Job::STATE_STARTING || entry->state() == v1::Job::STATE_RUNNING;
  if (runs) {
    RETURN_IF_ERROR(
        core_.Move(*entry, v1::Job::STATE_PAUSING, "its worker saves a checkpoint", {}));
    core_.attempts.TellToStop(*entry);
  } else if (entry->state() == v1::Job::STATE_PREPARING ||
             entry->state() == v1::Job::STATE_QUEUED) {
    RETURN_IF_ERROR(core_.Move(*entry, v1::Job::STATE_PAUSED, "paused", {}));
    if (entry->ready() == nullptr) entry->readiness.Reset();
  }
  return entry->record.job;
}

absl::StatusOr<v1::Job> JobChanger::Resume(const std::string& id) {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(id));
  Entry* entry = core_.Find(job->id());
  if (entry == nullptr || entry->state() != v1::Job::STATE_PAUSED)
    return WrongState(job->id(), "resume", NameOf(job->state()));
  JobRecord changed = entry->record;
  changed.not_before_us = 0;
  Change change;
  const bool prepared = !changed.train_data.empty();
  RETURN_IF_ERROR(MoveJob(changed, prepared ? v1::Job::STATE_QUEUED : v1::Job::STATE_PREPARING,
                          prepared ? "waits to be placed" : "waits to be prepared", WallMicros(),
                          change));
  RETURN_IF_ERROR(core_.Save(*entry, std::move(changed), std::move(change), Urgency::kMustLand));
  if (entry->ready() == nullptr) core_.readying.Await(*entry);
  return entry->record.job;
}

absl::StatusOr<v1::Job> JobChanger::Update(const v1::UpdateJobRequest& request) {
  ASSIGN_OR_RETURN(const JobPtr found, core_.index.Find(request.id()));
  if (Entry* entry = core_.Find(found->id())) {
    JobRecord changed = entry->record;
    RETURN_IF_ERROR(Apply(request, changed.job));
    RETURN_IF_ERROR(core_.Save(*entry, std::move(changed), {.labels = true}, Urgency::kRefusable));
    return entry->record.job;
  }
  ASSIGN_OR_RETURN(JobRecord ended, core_.store.FindJob(found->id()));
  RETURN_IF_ERROR(Apply(request, ended.job));
  RETURN_IF_ERROR(core_.store.Commit({.job = &ended, .labels = true}, Urgency::kRefusable));
  return ended.job;
}

absl::StatusOr<v1::Job> JobChanger::Delete(const std::string& id) {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(id));
  if (!IsTerminal(job->state())) return WrongState(job->id(), "delete", NameOf(job->state()));
  for (const auto& [other, entry] : core_.entries)
    if (GoesOnFrom(entry->record.job, job->id()))
      return WrongState(job->id(), "delete", "what a job that has not ended goes on from");
  ASSIGN_OR_RETURN(const std::string aside, Removal(core_).TakeJob(*job));
  core_.pool.Post([aside] { EmptyTrash(aside); });
  return *job;
}

}  // namespace snug::server
