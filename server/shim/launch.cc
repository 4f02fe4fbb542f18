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
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "server/shim/descriptor_message.h"
#include "server/shim/launch_wire.h"

namespace {

using snug::shim::kLaunchFd;
using snug::shim::kMaxLaunchBytes;

constexpr int kExitUsage = 64;        // EX_USAGE
constexpr int kExitNoConnection = 1;  // The daemon hears that it was hung up.

struct Request {
  std::string text;
  int fd = -1;
};

bool Receive(int connection, Request& request) {
  request.text.resize(kMaxLaunchBytes);
  std::vector<int> fds;
  const ssize_t got =
      snug::shim::ReceiveWithDescriptors(connection, request.text.data(), request.text.size(), fds);
  if (got <= 0 || fds.size() != 1) return false;
  request.fd = fds.front();
  request.text.resize(static_cast<size_t>(got));
  return true;
}

// Pointers into `text`, which ends with a zero; false: the number of arguments is none.
bool Split(std::string& text, std::vector<char*>& arguments, std::vector<char*>& environment) {
  if (text.empty() || text.back() != '\0') return false;
  size_t at = std::strlen(text.c_str()) + 1;
  const int count = std::atoi(text.c_str());
  for (; at < text.size(); at += std::strlen(&text[at]) + 1) {
    const bool argument = arguments.size() < static_cast<size_t>(count);
    (argument ? arguments : environment).push_back(&text[at]);
  }
  const bool all = count > 0 && arguments.size() == static_cast<size_t>(count);
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  return all;
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
  Request request;
  if (!Receive(STDIN_FILENO, request)) {
    fprintf(stderr, "snug-launch: no request on standard input\n");
    return kExitNoConnection;
  }
  std::vector<char*> arguments, environment;
  if (!Split(request.text, arguments, environment)) {
    fprintf(stderr, "snug-launch: a request that names no program\n");
    return kExitUsage;
  }
  const int connection = Arrange(request.fd);
  const pid_t pid = getpid();
  if (connection < 0 || send(connection, &pid, sizeof pid, MSG_NOSIGNAL) != sizeof pid) {
    perror("snug-launch: cannot answer");
    return kExitNoConnection;
  }
  execve(arguments[0], arguments.data(), environment.data());
  fprintf(stderr, "snug-launch: cannot start %s: %s\n", arguments[0], strerror(errno));
  return kExitNoConnection;
}
