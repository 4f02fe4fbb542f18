#include "server/scheduler/changes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/job/names.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/removal.h"
#include "server/scheduler/trash.h"

namespace snug::server {
namespace {

// Whether `other` reads what `job` has made.
bool GoesOnFrom(const v1::Job& other, const v1::Job& job) {
  return (other.extends_step() > 0 && ParentOf(other) == JobName(job)) || BeginsWith(other, job);
}

}  // namespace

absl::StatusOr<v1::Job> JobChanger::Ask(const std::string& key, const JobEvent& event) {
  core_.readying.Settle(key);
  if (Entry* entry = core_.Find(key)) {
    RETURN_IF_ERROR(core_.Apply(*entry, event).status());
    ASSIGN_OR_RETURN(const JobPtr changed, core_.index.Find(key));
    return *changed;
  }
  ASSIGN_OR_RETURN(const JobRecord ended, core_.store.FindJob(key));
  ASSIGN_OR_RETURN(JobStep step, StepJob({ended}, event, {.now_us = WallMicros()}));
  if (step.nothing) return ended.job;
  RETURN_IF_ERROR(core_.store.Commit(step.ToChange(), step.urgency));
  return std::move(step.job.job);
}

// Nobody is told of another's job.
absl::Status JobChanger::IsBegunWith(const v1::Job& job, const std::string& successor) const {
  const absl::StatusOr<JobPtr> other = core_.index.Find(successor);
  const bool own = other.ok() && (*other)->owner() == job.owner();
  return WrongState(job.id(), "delete",
                    own ? absl::StrCat("what job \"", (*other)->id(), "\" began with")
                        : "what another's job began with");
}

absl::StatusOr<v1::Job> JobChanger::Delete(const std::string& key) {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(key));
  if (!IsTerminal(job->state())) return WrongState(job->id(), "delete", NameOf(job->state()));
  for (const auto& [other, entry] : core_.entries)
    if (GoesOnFrom(entry->record.job, *job))
      return WrongState(job->id(), "delete", "what a job that has not ended goes on from");
  if (core_.IsNamedByComing(*job))
    return absl::UnavailableError("a new job that names it is on its way into the store");
  // What that one made may need it: an adapter has no other base.
  ASSIGN_OR_RETURN(const std::string successor, core_.store.FindSuccessor(JobName(*job)));
  if (!successor.empty()) return IsBegunWith(*job, successor);
  ASSIGN_OR_RETURN(const std::string aside, Removal(core_).TakeJob(*job));
  core_.pool.Post([aside] { EmptyTrash(aside); });
  return *job;
}

}  // namespace snug::server
