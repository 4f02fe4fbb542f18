#include "server/data/held_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

// Of all kinds, in one folder: ten times the files that a dataset may have.
constexpr size_t kMaxEntries = 1'000'000;

fs::file_type TypeOf(const fs::directory_entry& entry) {
  std::error_code error;  // Of one that has gone meanwhile: it is of no kind.
  if (entry.is_symlink(error)) return fs::file_type::symlink;
  if (entry.is_directory(error)) return fs::file_type::directory;
  return entry.is_regular_file(error) ? fs::file_type::regular : fs::file_type::unknown;
}

absl::Status CannotOpen(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
}

}  // namespace

int OpenToRead(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

bool IsRefused(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnimplemented(status);
}

absl::StatusOr<struct stat> StatFor(const std::string& path, const Reach& reach) {
  struct stat about = {};
  if (!reach.roots) {
    if (stat(path.c_str(), &about) != 0) return CannotOpen(path);
    return about;
  }
  const int fd = reach.open(path);
  if (fd < 0) return CannotOpen(path);
  const absl::Cleanup close_it = [fd] { close(fd); };
  if (fstat(fd, &about) != 0) return CannotOpen(path);
  return about;
}

absl::StatusOr<std::vector<FolderEntry>> ListFor(const std::string& folder, const Reach& reach) {
  const int fd = reach.open(folder);
  if (fd < 0) return CannotOpen(folder);
  const absl::Cleanup close_it = [fd] { close(fd); };
  std::vector<FolderEntry> entries;
  std::error_code error;
  fs::directory_iterator at(absl::StrCat("/proc/self/fd/", fd), error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (entries.size() == kMaxEntries)
      return absl::InvalidArgumentError(
          absl::StrCat(folder, " holds more than ", kMaxEntries, " files"));
    entries.push_back({at->path().filename().string(), TypeOf(*at)});
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  return entries;
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
