#include "worker/checkpoint/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::checkpoint {
namespace {

// Hashed and then written piece by piece, so that the second finds it in the processor's cache.
constexpr int64_t kPieceBytes = 1 << 20;

absl::Status Errno(const std::string& what) { return WriteError(errno, what); }

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::Status WriteError(int error, const std::string& what) {
  const absl::Status status = absl::ErrnoToStatus(error, what);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::UnavailableError(status.message());
    case EIO:
      return absl::AbortedError(status.message());
    default:
      return status;
  }
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path, int64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Errno(absl::StrCat("cannot create ", path));
  NewFile file(path, fd, bytes);
  int result = 0;
  do {
    result = bytes == 0 ? 0 : fallocate(fd, 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  // A file system without it: its full disk shows at the write.
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    return Errno(absl::StrCat("no room for the ", bytes, " bytes of ", path));
  }
  return file;
}

NewFile::NewFile(std::string path, int fd, int64_t bytes)
    : path_(std::move(path)), fd_(fd), promised_bytes_(bytes) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      promised_bytes_(other.promised_bytes_),
      written_bytes_(other.written_bytes_),
      hash_(std::move(other.hash_)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status NewFile::Append(const void* bytes, int64_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const int64_t piece = std::min(count, kPieceBytes);
    hash_.Update(from, piece);
    RETURN_IF_ERROR(WriteAll(from, piece));
    from += piece;
    count -= piece;
  }
  return absl::OkStatus();
}

absl::Status NewFile::WriteAll(const char* bytes, int64_t count) {
  while (count > 0) {
    const ssize_t written = write(fd_, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      return Errno(absl::StrCat("cannot write ", path_, " at byte ", written_bytes_));
    }
    bytes += written;
    count -= written;
    written_bytes_ += written;
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> NewFile::Finish() {
  if (written_bytes_ != promised_bytes_) {
    return absl::InternalError(absl::StrCat(path_, " was to have ", promised_bytes_,
                                            " bytes, written are ", written_bytes_));
  }
  if (fsync(fd_) != 0) return Errno(absl::StrCat("cannot sync ", path_));
  // Some file systems report the last write's failure here.
  if (close(std::exchange(fd_, -1)) != 0) return Errno(absl::StrCat("cannot close ", path_));
  return FileDigest{.bytes = written_bytes_, .sha256 = hash_.Finish()};
}

absl::StatusOr<FileDigest> WriteNewFile(const std::string& path, std::string_view content) {
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path, static_cast<int64_t>(content.size())));
  RETURN_IF_ERROR(file.Append(content.data(), static_cast<int64_t>(content.size())));
  return file.Finish();
}

absl::Status ReplaceFile(const std::string& path, std::string_view content) {
  const std::string aside = path + ".tmp";
  if (unlink(aside.c_str()) != 0 && errno != ENOENT) {
    return Errno(absl::StrCat("cannot remove ", aside));
  }
  RETURN_IF_ERROR(WriteNewFile(aside, content).status());
  if (rename(aside.c_str(), path.c_str()) != 0) {
    return Errno(absl::StrCat("cannot rename ", aside, " to ", path));
  }
  return SyncFolder(ParentOf(path));
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return absl::OkStatus();
  RETURN_IF_ERROR(MakeFolders(std::filesystem::path(path).parent_path().string()));
  // Another process may have been faster.
  if (mkdir(path.c_str(), 0700) != 0) {
    const int cause = errno;
    if (cause != EEXIST || !std::filesystem::is_directory(path, error)) {
      return WriteError(cause, absl::StrCat("cannot create the folder ", path));
    }
  }
  return SyncFolder(ParentOf(path));
}

absl::Status MakeFreshFolder(const std::string& path) {
  RETURN_IF_ERROR(RemoveFolder(path));
  if (mkdir(path.c_str(), 0700) != 0) return Errno(absl::StrCat("cannot create ", path));
  return absl::OkStatus();
}

absl::Status RemoveFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return WriteError(error.value(), absl::StrCat("cannot remove ", path));
}

absl::Status SyncFolder(const std::string& path) {
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return Errno(absl::StrCat("cannot open the folder ", path));
  if (fsync(folder.get()) != 0) return Errno(absl::StrCat("cannot sync the folder ", path));
  return absl::OkStatus();
}

absl::Status PublishFolder(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(SyncFolder(from));
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    return Errno(absl::StrCat("cannot rename ", from, " to ", to));
  }
  return SyncFolder(ParentOf(to));
}

}  // namespace snug::checkpoint
