#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/manifest.h"
#include "server/examine/examining.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

constexpr const char* kCheck = "goes_on_from_its_checkpoint";
constexpr int64_t kAttemptsPerPiece = 500;  // Two small files are read for each.
constexpr const char* kResumed =
    "SELECT job, epoch, resume_from, resume_step FROM attempts "
    "WHERE (job, epoch) > (?, ?) AND resume_from<>'' ORDER BY job, epoch LIMIT ?";

struct Resumed {
  std::string job;
  int epoch = 0;
  std::string from;
  int64_t step = 0;
};

// What the row says against the name of the checkpoint, its manifest, and the worker's own word of
// where it began. What retention has removed says nothing.
std::string WhatIsWrong(const Resumed& attempt, const std::string& state_dir) {
  const auto name = ParseCheckpointName(std::filesystem::path(attempt.from).filename().string());
  if (!name) return absl::StrCat("went on from ", attempt.from, ", which is no checkpoint's name");
  if (name->step != attempt.step)
    return absl::StrCat("went on from step ", attempt.step, " by its row, and from ", attempt.from);
  const bool own = std::filesystem::path(attempt.from).parent_path() ==
                   std::filesystem::path(CheckpointsDir(state_dir, attempt.job));
  if (own && name->epoch >= attempt.epoch)
    return absl::StrCat("went on from ", attempt.from, ", which a later attempt has made");
  const absl::Status manifest = ReadCheckpointManifest(attempt.from).status();
  if (absl::IsDataLoss(manifest)) return std::string(manifest.message());
  const auto result = ReadResult(AttemptDir(state_dir, attempt.job, attempt.epoch));
  if (!result.ok() || !*result) return "";
  const v1::Progress& progress = (*result)->progress();
  // One that has failed before it had read the checkpoint has not begun.
  if (progress.global_step() == 0 || progress.resumed_from_step() == attempt.step) return "";
  return absl::StrCat("was to go on from step ", attempt.step, ", and went on from ",
                      progress.resumed_from_step());
}

}  // namespace

absl::Status CheckResumptions(Examining& examining) {
  examining.Begin(kCheck);
  const std::string& state_dir = examining.premises().state_dir;
  Resumed last;
  std::vector<Resumed> piece;
  do {
    piece.clear();
    RETURN_IF_ERROR(examining.Look([&](Database& database) {
      return database.Query(kResumed, {last.job, int64_t{last.epoch}, kAttemptsPerPiece},
                            [&](const Row& row) {
                              piece.push_back({.job = row.Text(0),
                                               .epoch = static_cast<int>(row.Int(1)),
                                               .from = row.Text(2),
                                               .step = row.Int(3)});
                              return absl::OkStatus();
                            });
    }));
    const absl::Time begin = absl::Now();
    for (const Resumed& attempt : piece)
      if (std::string wrong = WhatIsWrong(attempt, state_dir); !wrong.empty())
        examining.Add(kCheck, attempt.job,
                      absl::StrCat("attempt ", attempt.epoch, " ", std::move(wrong)));
    if (!piece.empty()) {
      RETURN_IF_ERROR(examining.RestSince(begin));
      last = piece.back();
    }
  } while (!piece.empty());
  return absl::OkStatus();
}

}  // namespace snug::server
