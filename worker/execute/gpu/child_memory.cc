#include "worker/execute/gpu/child_memory.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::execute {
namespace {

constexpr char kGo = 'g';  // The answer is "t" and a number, or " " and what went wrong.

// Blocks until the other side writes or closes; what it wrote until then or, at the end of it all,
// nothing.
std::string Receive(int socket) {
  std::array<char, 4096> text;
  ssize_t bytes;
  while ((bytes = read(socket, text.data(), text.size())) < 0 && errno == EINTR) {
  }
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
}

void Send(int socket, const std::string& text) {
  (void)!send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

// Takes the memory when told to, says so, and holds it until the parent closes its end.
[[noreturn]] void RunChild(int socket, const MemoryProbe& probe) {
  if (Receive(socket).empty()) _exit(0);
  const absl::StatusOr<int64_t> seen = probe.take();
  Send(socket, seen.ok() ? absl::StrCat("t", *seen) : absl::StrCat(" ", seen.status().message()));
  Receive(socket);
  _exit(0);
}

// The child and the socket to it; waits for its end.
class Child {
 public:
  Child(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  ~Child() { End(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // What it saw go.
  absl::StatusOr<int64_t> Take() {
    Send(socket_, std::string(1, kGo));
    const std::string answer = Receive(socket_);
    int64_t seen = 0;
    if (answer.empty()) return absl::InternalError("the process that was to be measured died");
    if (answer[0] == 't' && absl::SimpleAtoi(answer.substr(1), &seen)) return seen;
    return absl::FailedPreconditionError(answer.substr(1));
  }
  void End() {
    if (pid_ == 0) return;
    close(socket_);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }

 private:
  pid_t pid_;
  const int socket_;
};

}  // namespace

absl::StatusOr<ChildMemory> BytesTakenByChild(const MemoryProbe& probe) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return absl::ErrnoToStatus(errno, "socketpair");
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  close(sockets[pid == 0 ? 0 : 1]);
  if (pid == 0) RunChild(sockets[1], probe);
  Child child(pid, sockets[0]);
  ASSIGN_OR_RETURN(const int64_t before, probe.free_bytes());
  ASSIGN_OR_RETURN(const int64_t seen, child.Take());
  ASSIGN_OR_RETURN(const int64_t during, probe.free_bytes());
  child.End();
  ASSIGN_OR_RETURN(const int64_t after, probe.free_bytes());
  const int64_t taken = std::max(before, after) - during;
  return ChildMemory{.taken_bytes = taken, .unseen_bytes = taken - seen};
}

}  // namespace snug::execute
