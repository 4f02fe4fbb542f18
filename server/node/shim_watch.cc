#include "server/node/shim_watch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"
#include "server/node/session.h"

namespace snug::server {
namespace {

// <state>/jobs of <state>/jobs/<job>/attempts/<epoch>: there as long as the state folder is.
bool JobsFolderStands(const std::string& attempt_dir) {
  const std::filesystem::path attempt = attempt_dir;
  struct stat status {};
  return stat(attempt.parent_path().parent_path().parent_path().c_str(), &status) == 0;
}

}  // namespace

ShimWatch::ShimWatch(std::string attempt_dir) : attempt_dir_(std::move(attempt_dir)) {}

std::unique_ptr<ShimWatch> ShimWatch::Adopt(std::string attempt_dir, pid_t shim) {
  const pid_t number = shim > 0 ? shim : ShimPid(attempt_dir);
  auto watch = std::make_unique<ShimWatch>(std::move(attempt_dir));
  watch->asks_lock_ = true;
  watch->Follow(number, /*just_started=*/false);
  return watch;
}

ShimWatch::~ShimWatch() {
  if (lock_ >= 0) close(lock_);
  if (process_ >= 0) close(process_);
}

void ShimWatch::Follow(pid_t shim, bool just_started) {
  shim_ = shim;
  just_started_ = just_started;
  OpenProcess();
  Look();
}

Liveness ShimWatch::Look() {
  if (lock_ < 0) lock_ = open((attempt_dir_ + "/lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (lock_ < 0)  // It is made before the shim is started.
    return errno == ENOENT && JobsFolderStands(attempt_dir_) ? Liveness::kGone : Liveness::kUnknown;
  if (flock(lock_, LOCK_SH | LOCK_NB) == 0) {
    flock(lock_, LOCK_UN);
    return Liveness::kGone;
  }
  return errno == EWOULDBLOCK ? Liveness::kLives : Liveness::kUnknown;
}

absl::Status ShimWatch::FindNumber() {
  if (shim_ > 0 || !asks_lock_) return absl::OkStatus();
  ASSIGN_OR_RETURN(shim_, ReadShimPid(attempt_dir_));
  return absl::OkStatus();
}

bool ShimWatch::OpenProcess() {
  if (process_ >= 0) return true;
  if (shim_ <= 1) return false;
  process_ = static_cast<int>(syscall(SYS_pidfd_open, shim_, 0));
  if (process_ < 0) return false;
  // Asked when it is pinned: a number that was recycled before that is found out.
  if (just_started_ || LeadsSession(shim_, attempt_dir_).value_or(false)) return true;
  close(std::exchange(process_, -1));
  return false;
}

absl::Status ShimWatch::SignalOthers(int signal) {
  RETURN_IF_ERROR(FindNumber());
  return SignalSession(shim_, attempt_dir_, signal).status();
}

absl::Status ShimWatch::Signal(int signal) {
  RETURN_IF_ERROR(FindNumber());
  if (!OpenProcess())
    return absl::NotFoundError(absl::StrCat("no shim of ", attempt_dir_, " is found"));
  if (syscall(SYS_pidfd_send_signal, process_, signal, nullptr, 0) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot signal the shim of ", attempt_dir_));
}

}  // namespace snug::server
