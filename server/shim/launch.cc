// snug-launch: becomes the process that snugd asks for on standard input, a connection as
// launch_wire.h has it. A service manager starts one for each connection, in a unit of its own
// (deploy/debian/snug-worker@.service): the daemon needs no right to start units.
//
// The reply is sent just before exec, when nothing is left that could be refused but the program
// itself: the id is this process's, and stays.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "server/shim/descriptor_message.h"
#include "server/shim/launch_request.h"
#include "server/shim/launch_wire.h"

namespace {

using snug::shim::kLaunchFd;
using snug::shim::kMaxLaunchBytes;

constexpr int kExitUsage = 64;        // EX_USAGE
constexpr int kExitNoConnection = 1;  // The daemon hears that it was hung up.

struct Message {
  std::string text;
  int fd = -1;
};

bool Receive(int connection, Message& message) {
  message.text.resize(kMaxLaunchBytes);
  std::vector<int> fds;
  const ssize_t got =
      snug::shim::ReceiveWithDescriptors(connection, message.text.data(), message.text.size(), fds);
  if (got <= 0 || fds.size() != 1) return false;
  message.fd = fds.front();
  message.text.resize(static_cast<size_t>(got));
  return true;
}

// Descriptor 0 becomes /dev/null and `fd` the one that the program expects; nothing else of ours
// goes on. The connection is returned, closed by exec.
int Arrange(int fd) {
  const int connection = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, kLaunchFd + 1);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (connection < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) return -1;
  if (fd == kLaunchFd ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, kLaunchFd) < 0) return -1;
  return connection;
}

}  // namespace

int main(int argc, char**) {
  if (argc != 1) {
    fprintf(stderr, "usage: snug-launch, its standard input a connection of snugd\n");
    return kExitUsage;
  }
  Message message;
  if (!Receive(STDIN_FILENO, message)) {
    fprintf(stderr, "snug-launch: no request on standard input\n");
    return kExitNoConnection;
  }
  snug::shim::LaunchRequest request;
  if (!snug::shim::SplitLaunchRequest(message.text, request)) {
    fprintf(stderr, "snug-launch: a request that names no program\n");
    return kExitUsage;
  }
  const int connection = Arrange(message.fd);
  const pid_t pid = getpid();
  if (connection < 0 || send(connection, &pid, sizeof pid, MSG_NOSIGNAL) != sizeof pid) {
    perror("snug-launch: cannot answer");
    return kExitNoConnection;
  }
  execve(request.arguments[0], request.arguments.data(), request.environment.data());
  fprintf(stderr, "snug-launch: cannot start %s: %s\n", request.arguments[0], strerror(errno));
  return kExitNoConnection;
}
