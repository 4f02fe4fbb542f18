#include "server/scheduler/trash.h"

#include <stdio.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/failpoint.h"
#include "server/job/log.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

std::string JobOf(const std::string& aside) {
  const std::string name = fs::path(aside).filename().string();
  return name.substr(0, name.rfind('.'));
}

}  // namespace

absl::StatusOr<std::string> MoveToTrash(const std::string& state_dir, const std::string& job) {
  std::error_code error;
  fs::create_directories(state_dir + "/trash", error);
  const std::string from = absl::StrCat(state_dir, "/jobs/", job);
  const std::string aside = absl::StrCat(state_dir, "/trash/", job, ".", RandomHex(12));
  if (FAILS_AT("trash.rename")) return absl::ErrnoToStatus(EIO, "a failed rename");
  const bool renamed = rename(from.c_str(), aside.c_str()) == 0;
  FAILPOINT("trash.renamed");
  if (renamed) return aside;
  if (errno == ENOENT && !fs::exists(from, error)) return std::string();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot move the files of job ", job, " away"));
}

void PutBack(const std::string& state_dir, const std::string& aside) {
  if (aside.empty()) return;
  const std::string to = absl::StrCat(state_dir, "/jobs/", JobOf(aside));
  FAILPOINT("trash.put_back");
  if (rename(aside.c_str(), to.c_str()) != 0)
    spdlog::error("the files of job {} stay in {}", JobOf(aside), aside);
}

void EmptyTrash(const std::string& aside) {
  if (aside.empty()) return;
  std::error_code error;
  fs::remove_all(aside, error);
  if (error) spdlog::error("cannot remove {}: {}", aside, error.message());
}

std::vector<std::string> SortTrash(const std::string& state_dir,
                                   const std::function<bool(const std::string& job)>& exists) {
  std::vector<std::string> gone;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(state_dir + "/trash", error)) {
    const std::string aside = entry.path().string();
    exists(JobOf(aside)) ? PutBack(state_dir, aside) : gone.push_back(aside);
  }
  return gone;
}

}  // namespace snug::server
