#include "worker/program/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace snug::program {

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  RegularFile file(path, fd, 0);
  struct stat about = {};
  if (fstat(fd, &about) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the size of ", path));
  }
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file.size_ = about.st_size;
  return file;
}

RegularFile::RegularFile(std::string path, int fd, int64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

RegularFile::~RegularFile() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::string> RegularFile::Read(int64_t offset, int64_t bytes) const {
  std::string content(bytes, '\0');
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(fd_, content.data() + done, bytes - done, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (got == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": ended at byte ", offset + done,
                                                     " while being read; it had ", size_));
    }
    done += got;
  }
  return content;
}

}  // namespace snug::program
