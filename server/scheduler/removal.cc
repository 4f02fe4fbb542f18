#include "server/scheduler/removal.h"

#include <stdio.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/log.h"
#include "server/job/names.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/trash.h"

namespace snug::server {
namespace {

constexpr const char* kDeleted = "deleted";
constexpr absl::Duration kAnswerPatience = absl::Seconds(30);  // A scheduler that ends gives none.

struct Answer {
  absl::Notification there;
  absl::StatusOr<std::string> folder = Draining();
};

bool RefersTo(const v1::Job& other, const v1::Job& job) {
  return ParentOf(other) == JobName(job) || BeginsWith(other, job);
}

// Under another name, so that what a crash leaves is no checkpoint; the next sweep finds none, and
// it goes with its job.
absl::StatusOr<std::string> MoveCheckpointsAside(const std::string& checkpoints) {
  const std::string aside = checkpoints + ".removed";
  std::error_code error;
  std::filesystem::remove_all(aside, error);
  if (FAILS_AT("removal.rename")) return absl::ErrnoToStatus(EIO, "a failed rename");
  const bool renamed = rename(checkpoints.c_str(), aside.c_str()) == 0;
  FAILPOINT("removal.renamed");
  if (renamed) return aside;
  if (errno == ENOENT) return std::string();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", checkpoints, " away"));
}

}  // namespace

absl::StatusOr<std::string> Removal::TakeAway(const std::string& key, Leaving what) const {
  const auto answer = std::make_shared<Answer>();
  const bool posted = core_.inbox.TryPost([removal = *this, key, what, answer] {
    answer->folder = removal.DoTakeAway(key, what);
    answer->there.Notify();
  });
  if (!posted) return Draining();
  if (!answer->there.WaitForNotificationWithTimeout(kAnswerPatience)) return Draining();
  return answer->folder;
}

absl::StatusOr<std::string> Removal::DoTakeAway(const std::string& key, Leaving what) const {
  const std::string& state_dir = core_.settings.state_dir;
  if (core_.draining) return Draining();
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(key));
  if (core_.IsNamedByComing(*job))
    return absl::UnavailableError("a new job that names it is on its way into the store");
  if (!IsTerminal(job->state())) return WrongState(key, "remove", EnumWord(job->state()));
  for (const auto& [other, entry] : core_.entries)
    if (RefersTo(entry->record.job, *job))
      return WrongState(key, "remove", absl::StrCat("what job \"", other, "\" refers to"));
  // One that has ended meanwhile: an adapter has no other base than what it began with.
  ASSIGN_OR_RETURN(const std::string successor, core_.store.FindSuccessor(JobName(*job)));
  if (!successor.empty() && what != Leaving::kLogs)
    return WrongState(key, "remove", absl::StrCat("what job \"", successor, "\" began with"));
  if (what == Leaving::kJob) return TakeJob(*job);
  if (what == Leaving::kCheckpoints) return MoveCheckpointsAside(CheckpointsDir(state_dir, key));
  return std::string();
}

// Its folder is moved aside before its rows go: what a crash leaves in between is put back at the
// next start.
absl::StatusOr<std::string> Removal::TakeJob(const v1::Job& job) const {
  const std::string& state_dir = core_.settings.state_dir;
  ASSIGN_OR_RETURN(std::string aside, MoveToTrash(state_dir, KeyOf(job)));
  Change change{.deleted = KeyOf(job)};
  change.events.push_back(
      {.job = KeyOf(job), .from = job.state(), .reason = kDeleted, .wall_us = WallMicros()});
  const absl::Status committed = core_.store.Commit(change);
  if (!committed.ok()) {
    PutBack(state_dir, aside);
    return committed;
  }
  spdlog::info("job {}: deleted", KeyOf(job));
  core_.metrics.CountJobs(job.state(), -1);
  return aside;
}

}  // namespace snug::server
