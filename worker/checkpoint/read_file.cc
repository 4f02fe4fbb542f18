#include "worker/checkpoint/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/opened_files.h"

namespace snug::checkpoint {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // Stays in a second-level cache between read and use.

}  // namespace

absl::StatusOr<OpenFile> OpenFile::Open(const std::string& path, Links links) {
  ASSIGN_OR_RETURN(const int fd,
                   program::OpenToRead(path, links == Links::kFollow ? 0 : O_NOFOLLOW));
  OpenFile file(path, fd, 0);
  struct stat about = {};
  if (fstat(fd, &about) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the size of ", path));
  }
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  file.bytes_ = about.st_size;
  return file;
}

OpenFile::OpenFile(std::string path, int fd, int64_t bytes)
    : path_(std::move(path)), fd_(fd), bytes_(bytes) {}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

OpenFile::~OpenFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OpenFile::Read(int64_t begin, int64_t count, void* to) const {
  int64_t done = 0;
  while (done < count) {
    const ssize_t got = pread(fd_, static_cast<char*>(to) + done, count - done, begin + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat("cannot read ", path_, " at byte ", begin + done));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ", begin + done, " of ",
                                              begin + count, " that are read"));
    }
    done += got;
  }
  return absl::OkStatus();
}

absl::Status OpenFile::ForEachPiece(
    int64_t begin, int64_t count, const std::function<absl::Status(std::string_view)>& use) const {
  std::vector<char> piece(std::min(count, kPieceBytes));
  for (int64_t done = 0; done < count;) {
    const int64_t here = std::min(count - done, kPieceBytes);
    RETURN_IF_ERROR(Read(begin + done, here, piece.data()));
    RETURN_IF_ERROR(use(std::string_view(piece.data(), here)));
    done += here;
  }
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> DigestFile(const std::string& path) {
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kRefuse));
  Sha256 hash;
  RETURN_IF_ERROR(file.ForEachPiece(0, file.bytes(), [&hash](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    return absl::OkStatus();
  }));
  return FileDigest{.bytes = file.bytes(), .sha256 = hash.Finish()};
}

absl::Status CopyFile(const std::string& from, const std::string& to, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(from, Links::kFollow));
  if (file.bytes() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(from, " has ", file.bytes(), " bytes; at most ", max_bytes));
  }
  ASSIGN_OR_RETURN(NewFile copy, NewFile::Create(to, file.bytes()));
  RETURN_IF_ERROR(file.ForEachPiece(0, file.bytes(), [&copy](std::string_view piece) {
    return copy.Append(piece.data(), static_cast<int64_t>(piece.size()));
  }));
  return copy.Finish().status();
}

}  // namespace snug::checkpoint
