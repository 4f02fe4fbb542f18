#include "server/data/prepared_folders.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/job/errors.h"
#include "server/job/random_id.h"

namespace snug::server {

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Make(const std::string& parent) {
  const std::string path = absl::StrCat(parent, "/run", kPartMark, RandomHex(8));
  if (mkdir(path.c_str(), 0700) == 0) return std::unique_ptr<RunFolder>(new RunFolder(path));
  return WithReason(
      absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno))),
      "PREPARE_FAILED");
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

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
