// Checkpoints: from which ones attempts went on, and whether those that are there are what the
// store says.
//
// The daemon goes on from folders, with or without a row: all folders are read. A row outlives its
// folder, which the worker removes when it has saved newer ones, and retention when the job has
// ended.
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/manifest.h"
#include "server/data/sha256.h"
#include "server/examine/examining.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResumptions = "goes_on_from_its_checkpoint";
constexpr const char* kCheckpoints = "checkpoints";

// Of a checkpoint whose folder is of that name.
CheckpointName NameOf(const std::string& dir) {
  return ParseCheckpointName(fs::path(dir).filename().string()).value_or(CheckpointName{});
}

// A checkpoint's row.
struct StoredCheckpoint {
  std::string manifest_sha256;  // Empty: there is no row, or it has none.
  bool damaged = false;         // As its job's reason has said.
};

absl::StatusOr<StoredCheckpoint> StoredAt(Database& database, const std::string& dir) {
  const std::string job = fs::path(dir).parent_path().parent_path().filename().string();
  const CheckpointName name = NameOf(dir);
  StoredCheckpoint stored;
  RETURN_IF_ERROR(database.Query(
      "SELECT manifest_sha256, state FROM checkpoints WHERE job=? AND step=? AND epoch=?",
      {job, name.step, int64_t{name.epoch}}, [&](const Row& row) {
        stored = {row.Text(0), row.Int(1) == CheckpointRecord::kCorrupt};
        return absl::OkStatus();
      }));
  return stored;
}

struct Resumed {
  std::string job;
  int epoch = 0;
  std::string from;
  int64_t step = 0;
  StoredCheckpoint stored;
};

// Of those whose manifests retention has removed nothing is known.
std::string WhatTheManifestSays(const Resumed& attempt) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadCheckpointManifest(attempt.from);
  if (absl::IsDataLoss(manifest.status())) return std::string(manifest.status().message());
  if (!manifest.ok() || attempt.stored.manifest_sha256.empty() ||
      attempt.stored.manifest_sha256 == Sha256Hex(manifest->text))
    return "";
  return absl::StrCat("went on from ", attempt.from, ", whose manifest is not the one of its row");
}

// What the row says against the name of the checkpoint, its manifest, and the worker's own word of
// where it began. The store has the step and no place in the data: that place is in the manifest
// alone, every byte of which the hash in the checkpoint's row is of. The worker takes both out of
// that one text, and gives its word on the step.
std::string WhatIsWrong(const Resumed& attempt, const std::string& state_dir) {
  const auto name = ParseCheckpointName(fs::path(attempt.from).filename().string());
  if (!name) return absl::StrCat("went on from ", attempt.from, ", which is no checkpoint's name");
  if (name->step != attempt.step)
    return absl::StrCat("went on from step ", attempt.step, " by its row, and from ", attempt.from);
  const bool own =
      fs::path(attempt.from).parent_path() == fs::path(CheckpointsDir(state_dir, attempt.job));
  if (own && name->epoch >= attempt.epoch)
    return absl::StrCat("went on from ", attempt.from, ", which a later attempt has made");
  if (std::string wrong = WhatTheManifestSays(attempt); !wrong.empty()) return wrong;
  const auto result = ReadResult(AttemptDir(state_dir, attempt.job, attempt.epoch));
  if (!result.ok() || !*result) return "";
  const v1::Progress& progress = (*result)->progress();
  // One that has failed before it had read the checkpoint has not begun.
  if (progress.global_step() == 0 || progress.resumed_from_step() == attempt.step) return "";
  return absl::StrCat("was to go on from step ", attempt.step, ", and went on from ",
                      progress.resumed_from_step());
}

absl::StatusOr<std::vector<Resumed>> ResumedOf(Database& database, const Range& jobs) {
  std::vector<Resumed> resumed;
  RETURN_IF_ERROR(
      database.Query("SELECT job, epoch, resume_from, resume_step FROM attempts "
                     "WHERE job BETWEEN ?1 AND ?2 AND resume_from<>''",
                     jobs, [&](const Row& row) {
                       resumed.push_back({.job = row.Text(0),
                                          .epoch = static_cast<int>(row.Int(1)),
                                          .from = row.Text(2),
                                          .step = row.Int(3)});
                       return absl::OkStatus();
                     }));
  for (Resumed& attempt : resumed) {
    ASSIGN_OR_RETURN(attempt.stored, StoredAt(database, attempt.from));
  }
  return resumed;
}

// A job, and the newest checkpoint that it must have. Empty: none, or it has ended.
struct Owner {
  std::string job, newest;
};

absl::Status ReadOwners(Database& database, const Range& arrivals, std::vector<Owner>& owners) {
  return database.Query(
      "SELECT id, CASE WHEN state IN (8, 9, 10) THEN '' ELSE coalesce((SELECT dir FROM checkpoints "
      "c WHERE c.job=id AND c.state=1 ORDER BY step DESC, epoch DESC LIMIT 1), '') END "
      "FROM jobs WHERE arrival BETWEEN ?1 AND ?2",
      arrivals, [&](const Row& row) {
        owners.push_back({row.Text(0), row.Text(1)});
        return absl::OkStatus();
      });
}

// What has gone meanwhile is not missed.
absl::Status CheckNewest(Examining& examining, const Owner& owner,
                         const std::vector<std::string>& dirs) {
  const CheckpointName wanted = NameOf(owner.newest);
  const CheckpointName found = dirs.empty() ? CheckpointName{} : NameOf(dirs.front());
  if (owner.newest.empty() ||
      std::pair(found.step, found.epoch) >= std::pair(wanted.step, wanted.epoch))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const int64_t lives,
      examining.Count("SELECT count(*) FROM jobs WHERE id=? AND state NOT IN (8, 9, 10)",
                      {owner.job}));
  if (lives > 0) examining.Add(kCheckpoints, owner.job, absl::StrCat(owner.newest, " is missing"));
  return absl::OkStatus();
}

absl::Status CheckFolder(Examining& examining, const std::string& job, const std::string& dir) {
  StoredCheckpoint stored;
  RETURN_IF_ERROR(examining.Look([&](Database& database) {
    ASSIGN_OR_RETURN(stored, StoredAt(database, dir));
    return absl::OkStatus();
  }));
  if (stored.damaged) return absl::OkStatus();
  const absl::StatusOr<CheckpointRecord> found =
      VerifyCheckpoint(job, dir, examining.RestsWithinFiles());
  if (absl::IsCancelled(found.status())) return found.status();
  std::string wrong(found.status().message());
  if (found.ok() && !stored.manifest_sha256.empty() &&
      found->manifest_sha256 != stored.manifest_sha256)
    wrong = absl::StrCat(dir, " has another manifest than its row");
  std::error_code ignored;
  if (!wrong.empty() && fs::exists(dir, ignored))
    examining.Add(kCheckpoints, job, std::move(wrong));
  return absl::OkStatus();
}

absl::Status CheckFolders(Examining& examining, const Owner& owner) {
  const absl::Time begin = absl::Now();
  const absl::StatusOr<std::vector<std::string>> dirs =
      ListCheckpoints(CheckpointsDir(examining.premises().state_dir, owner.job));
  RETURN_IF_ERROR(examining.RestSince(begin));
  if (!dirs.ok()) {
    examining.Add(kCheckpoints, owner.job, std::string(dirs.status().message()));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckNewest(examining, owner, *dirs));
  for (const std::string& dir : *dirs) RETURN_IF_ERROR(CheckFolder(examining, owner.job, dir));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckResumptions(Examining& examining) {
  examining.Begin(kResumptions);
  std::vector<Resumed> resumed;
  const auto read = [&](Database& database, const Range& jobs) {
    ASSIGN_OR_RETURN(resumed, ResumedOf(database, jobs));
    return absl::OkStatus();
  };
  return examining.LookThrough({"attempts", "job"}, read, [&] {
    const absl::Time begin = absl::Now();
    for (const Resumed& attempt : resumed)
      if (std::string wrong = WhatIsWrong(attempt, examining.premises().state_dir); !wrong.empty())
        examining.Add(kResumptions, attempt.job,
                      absl::StrCat("attempt ", attempt.epoch, " ", std::move(wrong)));
    return examining.RestSince(begin);
  });
}

absl::Status CheckCheckpoints(Examining& examining) {
  examining.Begin(kCheckpoints);
  std::vector<Owner> owners;
  const auto read = [&](Database& database, const Range& arrivals) {
    owners.clear();
    return ReadOwners(database, arrivals, owners);
  };
  return examining.LookThrough({"jobs", "arrival"}, read, [&] {
    for (const Owner& owner : owners) RETURN_IF_ERROR(CheckFolders(examining, owner));
    return absl::OkStatus();
  });
}

}  // namespace snug::server
