#include "worker/program/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/opened_files.h"

namespace snug::program {

namespace {

namespace fs = std::filesystem;

const HandedFiles* handed_files = nullptr;  // Null: the file system.

absl::StatusOr<int> OpenHanded(const std::string& path) {
  const auto found = handed_files->find(path);
  int error = ENOENT;
  if (found != handed_files->end()) {
    const HandedFile& file = found->second;
    const int fd = file.fd < 0 ? -1 : fcntl(file.fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0) return fd;
    error = file.fd >= 0 ? errno : file.error == 0 ? EACCES : file.error;
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot open ", path));
}

// `prefix` ends with a slash.
std::vector<std::string> HandedNames(const std::string& prefix) {
  std::vector<std::string> names;
  for (auto at = handed_files->lower_bound(prefix);
       at != handed_files->end() && absl::StartsWith(at->first, prefix); ++at) {
    const std::string name = at->first.substr(prefix.size());
    if (!absl::StrContains(name, '/')) names.push_back(name);
  }
  return names;
}

}  // namespace

void ReadHandedFiles(const HandedFiles* files) { handed_files = files; }

bool IsSomethingAt(const std::string& path) {
  if (handed_files != nullptr) return handed_files->contains(path);
  if (!MayBeThere(path)) return false;
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder, size_t limit) {
  std::vector<std::string> names;
  std::error_code error;
  if (handed_files != nullptr) {
    names = HandedNames(folder + "/");
  } else if (fs::is_directory(folder, error)) {
    fs::directory_iterator walk(folder, error);
    for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
      std::string name = walk->path().filename().string();
      if (MayBeThere(absl::StrCat(folder, "/", name))) names.push_back(std::move(name));
      if (names.size() > limit) break;
    }
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", folder));
  }
  if (names.size() > limit) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": more than ", limit, " files"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int fd, handed_files != nullptr ? OpenHanded(path) : OpenToRead(path));
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
