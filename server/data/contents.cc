#include "server/data/contents.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr size_t kMost = 4096;

absl::StatusOr<std::string> IdentityOf(int fd, const std::string& path) {
  struct stat file {};
  if (fstat(fd, &file) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return absl::StrCat(file.st_dev, "|", file.st_ino, "|", file.st_size, "|", file.st_mtim.tv_sec,
                      ".", file.st_mtim.tv_nsec, "|", file.st_ctim.tv_sec, ".",
                      file.st_ctim.tv_nsec);
}

}  // namespace

absl::StatusOr<Content> ContentMemo::Of(int fd, const std::string& path, const Content& known,
                                        const HashWatch& watch) {
  ASSIGN_OR_RETURN(const std::string identity, IdentityOf(fd, path));
  if (known.identity == identity) return known;
  {
    absl::MutexLock lock(&mutex_);
    if (auto found = hashes_.find(identity); found != hashes_.end())
      return Content{identity, found->second};
  }
  ASSIGN_OR_RETURN(const std::string hash, Sha256Open(fd, path, watch));
  absl::MutexLock lock(&mutex_);
  if (hashes_.size() >= kMost) hashes_.clear();
  hashes_[identity] = hash;
  return Content{identity, hash};
}

}  // namespace snug::server
