#include "worker/weights/shared_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::weights {
namespace {

constexpr int64_t kUnfinished = 1;  // Bytes that a file has too many until it is whole.

absl::Status Lock(int file, int kind) {
  while (flock(file, kind) != 0)
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "flock");
  return absl::OkStatus();
}

// Whether the path still leads to the open file: it may have been removed meanwhile.
absl::StatusOr<bool> IsAt(const std::string& path, int file, struct stat& open) {
  struct stat there {};
  if (fstat(file, &open) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("fstat ", path));
  return stat(path.c_str(), &there) == 0 && there.st_dev == open.st_dev &&
         there.st_ino == open.st_ino;
}

}  // namespace

SharedFile::SharedFile(SharedFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      to_fill_(other.to_fill_) {}

SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(to_fill_, other.to_fill_);
  return *this;
}

SharedFile::~SharedFile() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  if (file_ >= 0) close(file_);
}

absl::StatusOr<SharedFile> SharedFile::Open(const std::string& path, int64_t bytes) {
  std::error_code made;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), made);
  while (true) {
    SharedFile shared;
    shared.file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (shared.file_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("could not open ", path));
    // Who fills it holds it alone; who asks for that lets go of what he holds in common.
    bool there = true;
    for (const int kind : {LOCK_SH, LOCK_EX}) {
      RETURN_IF_ERROR(Lock(shared.file_, kind));
      struct stat status {};
      ASSIGN_OR_RETURN(there, IsAt(path, shared.file_, status));
      shared.to_fill_ = status.st_size != bytes;
      if (!there || !shared.to_fill_) break;
    }
    if (!there) continue;
    if (shared.to_fill_) RETURN_IF_ERROR(shared.MakeRoom(path, bytes));
    RETURN_IF_ERROR(shared.Map(bytes));
    if (!shared.to_fill_) RETURN_IF_ERROR(Lock(shared.file_, LOCK_SH));
    return shared;
  }
}

// A write to a hole would end the process where the disk is full.
absl::Status SharedFile::MakeRoom(const std::string& path, int64_t bytes) const {
  const int64_t size = bytes + kUnfinished;
  if (ftruncate(file_, 0) != 0 || ftruncate(file_, size) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("ftruncate ", path));
  const int error = posix_fallocate(file_, 0, size);
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("no room for ", bytes, " bytes of weights that jobs share, in ", path));
}

absl::Status SharedFile::Map(int64_t bytes) {
  const int access = to_fill_ ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = mmap(nullptr, static_cast<size_t>(bytes), access, MAP_SHARED, file_, 0);
  if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "could not map shared weights");
  data_ = static_cast<char*>(address);
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status SharedFile::Publish() {
  if (!to_fill_) return absl::OkStatus();
  const bool done = mprotect(data_, static_cast<size_t>(bytes_), PROT_READ) == 0 &&
                    ftruncate(file_, bytes_) == 0;
  if (!done) return absl::ErrnoToStatus(errno, "could not publish shared weights");
  to_fill_ = false;
  return Lock(file_, LOCK_SH);
}

}  // namespace snug::weights
