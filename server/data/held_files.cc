#include "server/data/held_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {

int OpenToRead(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

absl::StatusOr<std::string> IdentityOfFile(int fd, const std::string& path) {
  struct stat file {};
  if (fstat(fd, &file) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return absl::StrCat(path, "|", file.st_dev, "|", file.st_ino, "|", file.st_size, "|",
                      file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec, "|", file.st_ctim.tv_sec, ".",
                      file.st_ctim.tv_nsec);
}

HeldFiles::HeldFiles(HeldFiles&& other) noexcept : files_(std::exchange(other.files_, {})) {}

HeldFiles::~HeldFiles() {
  for (const auto& [path, held] : files_) close(held.fd);
}

HeldFiles HeldFiles::Open(const std::vector<std::string>& paths, const Reach& reach) {
  HeldFiles files;
  if (paths.size() > kMost) return files;
  for (const std::string& path : paths) {
    if (files.files_.contains(path)) continue;
    const int fd = reach.open(path);
    if (fd < 0 || !files.Hold(fd, path).ok()) return HeldFiles();
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
    RETURN_IF_ERROR(files.Hold(fd, path));
  }
  return files;
}

absl::Status HeldFiles::Hold(int fd, const std::string& path) {
  Held& held = files_[path];
  held.fd = fd;
  ASSIGN_OR_RETURN(held.identity, IdentityOfFile(fd, path));
  return absl::OkStatus();
}

std::vector<int> HeldFiles::fds() const {
  std::vector<int> fds;
  for (const auto& [path, held] : files_) fds.push_back(held.fd);
  return fds;
}

std::map<std::string, size_t> HeldFiles::places() const {
  std::map<std::string, size_t> places;
  for (const auto& [path, held] : files_) {
    const size_t place = places.size();
    places[path] = place;
  }
  return places;
}

int HeldFiles::OpenAgain(const std::string& path, const Reach& reach) const {
  const auto found = files_.find(path);
  if (found == files_.end()) return reach.open(path);
  return fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
}

bool HeldFiles::AreUntouched() const {
  for (const auto& [path, held] : files_) {
    const absl::StatusOr<std::string> now = IdentityOfFile(held.fd, path);
    if (!now.ok() || *now != held.identity) return false;
  }
  return true;
}

}  // namespace snug::server
