#include "server/api/backup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

constexpr char kCopy[] = "snug.db.backup-";

class BackupReader {
 public:
  BackupReader(JobStore& store, std::string path) : store_(store), path_(std::move(path)) {}
  BackupReader(const BackupReader&) = delete;
  BackupReader& operator=(const BackupReader&) = delete;
  ~BackupReader() {
    if (fd_ >= 0) close(fd_);
  }

  absl::StatusOr<Next<v1::FileChunk>> operator()() {
    Next<v1::FileChunk> next = {.kind = Next<v1::FileChunk>::kMessage, .message = {}};
    v1::FileChunk& chunk = next.message;
    if (fd_ < 0) {
      RETURN_IF_ERROR(Open());
      chunk.set_path("snug.db");
      chunk.set_file_bytes(bytes_);
    }
    if (offset_ == bytes_) return Next<v1::FileChunk>{};
    std::string& content = *chunk.mutable_content();
    content.resize(kChunkBytes);
    const ssize_t got = pread(fd_, content.data(), content.size(), offset_);
    if (got <= 0) return absl::ErrnoToStatus(errno, "cannot read the copy of the store");
    content.resize(static_cast<size_t>(got));
    offset_ += got;
    return next;
  }

 private:
  // The name goes at once: whatever happens, nothing is left behind.
  absl::Status Open() {
    const absl::Status copied = store_.Backup(path_);
    if (copied.ok()) fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    const int error = errno;
    FAILPOINT("backup.copied");
    unlink(path_.c_str());
    RETURN_IF_ERROR(copied);
    struct stat file {};
    if (fd_ < 0 || fstat(fd_, &file) != 0)
      return absl::ErrnoToStatus(error, "cannot open the copy of the store");
    bytes_ = file.st_size;
    return absl::OkStatus();
  }

  JobStore& store_;
  const std::string path_;
  int fd_ = -1;
  int64_t offset_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

void RemoveLeftBackups(const std::string& state_dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir, error))
    if (absl::StartsWith(entry.path().filename().string(), kCopy)) unlink(entry.path().c_str());
}

MessageSource<v1::FileChunk> BackupSource(JobStore& store, const std::string& state_dir) {
  auto reader =
      std::make_shared<BackupReader>(store, absl::StrCat(state_dir, "/", kCopy, RandomHex(12)));
  return [reader] { return (*reader)(); };
}

}  // namespace snug::server
