#include "server/node/rotated_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "proto/snug/status_macros.h"

namespace snug::server {

// Zeros: there is no such file.
absl::StatusOr<RotatedLog::FileId> RotatedLog::IdOf(const std::string& path) {
  struct statx about {};
  if (statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_TYPE | STATX_BTIME,
            &about) == 0)
    return FileId{about.stx_ino, about.stx_btime.tv_sec, about.stx_btime.tv_nsec};
  if (errno == ENOENT) return FileId{};
  return absl::ErrnoToStatus(errno, "cannot look at a log of the job");
}

absl::StatusOr<std::string> RotatedLog::Read(size_t limit) {
  const std::string older = path_ + ".1";
  ASSIGN_OR_RETURN(const FileId before, IdOf(older));
  ASSIGN_OR_RETURN(const FileId now, IdOf(path_));
  if (now == FileId{}) return std::string();
  if (file_ == now) return ReadFile(path_, limit);
  if (before != FileId{}) {
    // The one that was being read, or, where that is gone, the oldest that is there.
    if (file_ != before) offset_ = 0;
    file_ = before;
    ASSIGN_OR_RETURN(std::string bytes, ReadFile(older, limit));
    if (!bytes.empty()) return bytes;
  }
  file_ = now;
  offset_ = 0;
  return ReadFile(path_, limit);
}

absl::StatusOr<std::string> RotatedLog::ReadFile(const std::string& path, size_t limit) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return std::string();
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open a file of the job");
  const absl::Cleanup close_it = [fd] { close(fd); };
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return absl::DataLossError("a log of the job is no file");
  std::string bytes(limit, '\0');
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), offset_);
  if (got < 0) return absl::ErrnoToStatus(errno, "cannot read a file of the job");
  bytes.resize(static_cast<size_t>(got));
  offset_ += got;
  return bytes;
}

}  // namespace snug::server
