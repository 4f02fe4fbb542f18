#include "server/scheduler/changes.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/removal.h"
#include "server/scheduler/trash.h"

namespace snug::server {
namespace {

// Whether `other` reads what `id` has made.
bool GoesOnFrom(const v1::Job& other, const std::string& id) {
  const bool extends = other.extends_step() > 0 && other.parent_job() == id;
  return extends || BeginsWith(other.spec(), id);
}

}  // namespace

absl::StatusOr<v1::Job> JobChanger::Ask(const std::string& ref, const JobEvent& event) {
  ASSIGN_OR_RETURN(const JobPtr found, core_.index.Find(ref));
  core_.readying.Settle(found->id());
  if (Entry* entry = core_.Find(found->id())) {
    RETURN_IF_ERROR(core_.Apply(*entry, event).status());
    ASSIGN_OR_RETURN(const JobPtr changed, core_.index.Find(found->id()));
    return *changed;
  }
  ASSIGN_OR_RETURN(const JobRecord ended, core_.store.FindJob(found->id()));
  ASSIGN_OR_RETURN(JobStep step, StepJob({ended}, event, {.now_us = WallMicros()}));
  if (step.nothing) return ended.job;
  RETURN_IF_ERROR(core_.store.Commit(step.ToChange(), step.urgency));
  return std::move(step.job.job);
}

absl::StatusOr<v1::Job> JobChanger::Delete(const std::string& ref) {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(ref));
  if (!IsTerminal(job->state())) return WrongState(job->id(), "delete", NameOf(job->state()));
  for (const auto& [other, entry] : core_.entries)
    if (GoesOnFrom(entry->record.job, job->id()))
      return WrongState(job->id(), "delete", "what a job that has not ended goes on from");
  ASSIGN_OR_RETURN(const std::string aside, Removal(core_).TakeJob(*job));
  core_.pool.Post([aside] { EmptyTrash(aside); });
  return *job;
}

}  // namespace snug::server
