#include "server/api/file_sender.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

constexpr int64_t kHashBytes = 16 << 20;  // Between two calls; some 10 ms.

absl::Status Outside(const OutputFile& file, FileRange range) {
  return WithReason(
      absl::OutOfRangeError(absl::StrCat(
          file.path, " has ", file.bytes, " bytes, and asked for are ",
          range.length == 0 ? "those" : absl::StrCat(range.length), " from ", range.offset, " on")),
      "RANGE_OUTSIDE");
}

bool Fits(const OutputFile& file, FileRange range) {
  return range.offset <= file.bytes && range.length <= file.bytes - range.offset;
}

Next<v1::FileChunk> Later() {
  return {.kind = Next<v1::FileChunk>::kWait, .message = {}, .wait = absl::ZeroDuration()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileSender>> FileSender::Open(const std::string& dir,
                                                             const OutputFile& file,
                                                             FileRange range, FileHashes& hashes) {
  if (!Fits(file, range)) return Outside(file, range);
  const std::string path = absl::StrCat(dir, "/", file.path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open a file of the job");
  std::unique_ptr<FileSender> sender(new FileSender(fd, file, range, hashes));
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != file.bytes)
    return absl::DataLossError(absl::StrCat(file.path, " has changed"));
  sender->state_ = FileState(status);
  sender->known_ = hashes.Find(*sender->state_);
  if (sender->known_) sender->position_ = sender->begin_;
  return sender;
}

FileSender::FileSender(int fd, OutputFile file, FileRange range, FileHashes& hashes)
    : fd_(fd),
      file_(std::move(file)),
      begin_(range.offset),
      end_(range.length == 0 ? file_.bytes : range.offset + range.length),
      hashes_(hashes) {}

FileSender::~FileSender() { close(fd_); }

absl::StatusOr<Next<v1::FileChunk>> FileSender::Pull() {
  if (done_) return Next<v1::FileChunk>{};
  if (position_ < begin_) return HashUpTo(begin_);
  if (position_ < end_ || !begun_) return Send();
  return HashUpTo(file_.bytes);
}

absl::StatusOr<Next<v1::FileChunk>> FileSender::Send() {
  const int64_t left = end_ - position_;
  ASSIGN_OR_RETURN(std::string bytes, Read(std::min<int64_t>(left, kChunkBytes)));
  Next<v1::FileChunk> next = {.kind = Next<v1::FileChunk>::kMessage, .message = {}};
  if (!begun_) {
    next.message.set_path(file_.path);
    next.message.set_file_bytes(file_.bytes);
    next.message.set_offset(begin_);
  }
  begun_ = true;
  next.message.set_content(std::move(bytes));
  if (position_ == end_) Conclude(next.message);
  return next;
}

absl::StatusOr<Next<v1::FileChunk>> FileSender::HashUpTo(int64_t end) {
  RETURN_IF_ERROR(Read(std::min(end - position_, kHashBytes)).status());
  if (position_ < file_.bytes || !begun_) return Later();
  Next<v1::FileChunk> next = {.kind = Next<v1::FileChunk>::kMessage, .message = {}};
  Conclude(next.message);
  return next;
}

void FileSender::Conclude(v1::FileChunk& chunk) {
  if (!known_ && position_ == file_.bytes) {
    known_ = digest_.Hex();
    struct stat status {};
    // Of a file that was written meanwhile it is nobody's hash.
    if (fstat(fd_, &status) == 0 && FileState(status) == *state_) hashes_.Put(*state_, *known_);
  }
  if (!known_) return;
  chunk.set_sha256(*known_);
  done_ = true;
}

// From the position on, which moves.
absl::StatusOr<std::string> FileSender::Read(int64_t bytes) {
  std::string content(static_cast<size_t>(bytes), '\0');
  size_t got = 0;
  while (got < content.size()) {
    const ssize_t more = pread(fd_, content.data() + got, content.size() - got,
                               position_ + static_cast<int64_t>(got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return absl::ErrnoToStatus(errno, "cannot read a file of the job");
    if (more == 0) return absl::DataLossError(absl::StrCat(file_.path, " has become shorter"));
    got += static_cast<size_t>(more);
  }
  position_ += bytes;
  if (!known_) digest_.Add(content);
  return content;
}

}  // namespace snug::server
