#include "server/node/shared_weights.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "proto/snug/status_macros.h"
#include "server/node/launcher.h"

namespace snug::server {
namespace {

std::string FolderOfAllBoots(const std::string& state_dir) { return state_dir + "/weights"; }

}  // namespace

absl::StatusOr<std::string> SharedWeightsDir(const std::string& state_dir) {
  ASSIGN_OR_RETURN(const std::string boot, BootId());
  return FolderOfAllBoots(state_dir) + "/" + boot;
}

void SweepSharedWeights(const std::string& state_dir) {
  const absl::StatusOr<std::string> this_boot = BootId();
  if (!this_boot.ok()) return;
  const std::string all_boots = FolderOfAllBoots(state_dir);
  std::error_code error;
  for (const auto& boot : std::filesystem::directory_iterator(all_boots, error)) {
    std::error_code ignored;
    if (boot.path().filename() != *this_boot) std::filesystem::remove_all(boot.path(), ignored);
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(all_boots + "/" + *this_boot, error)) {
    const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) continue;
    const bool unused = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (unused) unlink(entry.path().c_str());
    close(file);
  }
}

}  // namespace snug::server
