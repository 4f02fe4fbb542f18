#include "server/node/remote_spawn.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/shim/descriptor_message.h"
#include "server/shim/launch_wire.h"

namespace snug::server {
namespace {

// A service manager starts a process in some 10 ms. The scheduler waits for it: rather an attempt
// that fails, and is tried again, than a daemon that stands still.
constexpr timeval kPatience = {.tv_sec = 10, .tv_usec = 0};

absl::StatusOr<int> Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return absl::InvalidArgumentError(
        absl::StrCat("socket path ", path, " has ", path.size(), " bytes, more than 107"));
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  // Whatever the reason, no fault of the job's: it is tried again.
  const absl::Status status = absl::UnavailableError(
      absl::StrCat("cannot reach the launcher at ", path, ": ", strerror(errno)));
  close(fd);
  return status;
}

std::string RequestOf(const SpawnOptions& options) {
  std::string text = absl::StrCat(options.argv.size());
  text += '\0';
  for (const std::string& word : options.argv) text.append(word.c_str(), word.size() + 1);
  for (const std::string& word : ChildEnvironment(options.environment))
    text.append(word.c_str(), word.size() + 1);
  return text;
}

absl::Status Send(int connection, const std::string& text, int fd) {
  if (text.size() > shim::kMaxLaunchBytes)
    return absl::InvalidArgumentError(absl::StrCat("a process with ", text.size(),
                                                   " bytes of arguments and environment; the ",
                                                   "launcher takes ", shim::kMaxLaunchBytes));
  if (FAILS_AT("spawn.ask")) return absl::ErrnoToStatus(EPIPE, "a failed message");
  const ssize_t sent = shim::SendWithDescriptors(connection, text.data(), text.size(), {fd});
  if (sent == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "cannot send to the launcher");
}

}  // namespace

absl::StatusOr<pid_t> SpawnAt(const std::string& socket, const SpawnOptions& options) {
  ASSIGN_OR_RETURN(const int connection, Connect(socket));
  const absl::Cleanup close_it = [connection] { close(connection); };
  RETURN_IF_ERROR(Send(connection, RequestOf(options), options.passed_fds.front()));
  pid_t pid = 0;
  const ssize_t got = recv(connection, &pid, sizeof pid, 0);
  if (got == sizeof pid && pid > 0) return pid;
  if (got < 0) return absl::ErrnoToStatus(errno, "the launcher does not answer");
  return absl::UnavailableError(absl::StrCat("the launcher at ", socket, " has started nothing; ",
                                             "its unit's log says why"));
}

}  // namespace snug::server
