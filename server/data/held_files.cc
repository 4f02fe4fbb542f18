#include "server/data/held_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace snug::server {

int OpenToRead(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

HeldFiles::HeldFiles(HeldFiles&& other) noexcept : files_(std::exchange(other.files_, {})) {}

HeldFiles::~HeldFiles() {
  for (const auto& [path, fd] : files_) close(fd);
}

HeldFiles HeldFiles::Open(const std::vector<std::string>& paths, const Reach& reach) {
  HeldFiles files;
  if (paths.size() > kMost) return files;
  for (const std::string& path : paths) {
    if (files.Holds(path)) continue;
    const int fd = reach.open(path);
    if (fd < 0) return HeldFiles();
    files.files_[path] = fd;
  }
  return files;
}

absl::StatusOr<HeldFiles> HeldFiles::OpenPresent(const std::vector<std::string>& paths,
                                                 const Reach& reach) {
  if (paths.size() > kMost)
    return absl::InvalidArgumentError(
        absl::StrCat(paths.size(), " files, of which ", kMost, " are the most that are read"));
  HeldFiles files;
  for (const std::string& path : paths) {
    const int fd = reach.open(path);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    files.files_[path] = fd;
  }
  return files;
}

std::vector<std::string> HeldFiles::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, fd] : files_) paths.push_back(path);
  return paths;
}

int HeldFiles::OpenAgain(const std::string& path, const Reach& reach) const {
  const auto found = files_.find(path);
  if (found == files_.end()) return reach.open(path);
  return fcntl(found->second, F_DUPFD_CLOEXEC, 0);
}

}  // namespace snug::server
