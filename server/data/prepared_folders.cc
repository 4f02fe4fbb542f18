#include "server/data/prepared_folders.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/match.h"

namespace snug::server {

std::vector<std::string> PreparedIn(const std::string& folder) {
  std::vector<std::string> prepared;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const bool complete = !absl::StrContains(entry.path().filename().string(), kPartMark);
    if (complete && entry.is_directory(error)) prepared.push_back(entry.path().string());
  }
  return prepared;
}

absl::Time LastUse(const std::string& prepared) {
  struct stat about = {};
  if (stat(prepared.c_str(), &about) != 0) return absl::InfinitePast();
  return absl::TimeFromTimespec(about.st_mtim);
}

void NoteUse(const std::string& prepared) { utimensat(AT_FDCWD, prepared.c_str(), nullptr, 0); }

}  // namespace snug::server
