#include "server/node/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/node/forked_child.h"

namespace snug::server {
namespace {

constexpr int kBacklog = 1024;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool SomebodyAnswers(const sockaddr_un& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool answered =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return answered;
}

absl::Status RemoveStale(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? absl::OkStatus()
                           : absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  }
  if (!S_ISSOCK(status.st_mode))
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a socket: remove it, or choose another --socket"));
  if (status.st_uid != geteuid())
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to user ", status.st_uid, ": choose another --socket"));
  if (!SoonSo([&] { return !SomebodyAnswers(address); }))
    return absl::FailedPreconditionError(
        absl::StrCat("another daemon serves on ", path, ": stop it, or choose another --socket"));
  if (unlink(path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove the stale socket ", path));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPrivateFolder(const std::string& dir) {
  struct stat status {};
  if (lstat(dir.c_str(), &status) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", dir));
  if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
      (status.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(dir, " is not a folder of this user alone (it belongs to user ", status.st_uid,
                   "): somebody else may have made it; remove it, or choose another --socket"));
}

absl::StatusOr<int> ListenUnix(const std::string& path, mode_t mode) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " has ", path.size(),
                                                   " bytes; a unix socket's has at most 107"));
  const sockaddr_un address = AddressOf(path);
  RETURN_IF_ERROR(RemoveStale(path, address));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  absl::Cleanup close_on_error = [fd] { close(fd); };
  // The file is born with the mode of the descriptor, less the umask: never wider than wanted. (Not
  // by the umask itself: it is the whole process's, and other threads make folders.)
  if (fchmod(fd, mode) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot bind ", path));
  if (chmod(path.c_str(), mode) != 0 || listen(fd, kBacklog) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", path));
  std::move(close_on_error).Cancel();
  return fd;
}

}  // namespace snug::server
