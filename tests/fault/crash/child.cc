#include "tests/fault/crash/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"

namespace snug::crash {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void AddEnvironment(std::vector<std::string>& environment) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('=') + 1);
    const bool given = std::any_of(environment.begin(), environment.end(),
                                   [&](const auto& over) { return absl::StartsWith(over, name); });
    if (!given) environment.push_back(text);
  }
}

}  // namespace

Child::Child(std::vector<std::string> argv, std::vector<std::string> environment,
             const std::string& log, int input) {
  AddEnvironment(environment);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  if (input < 0)
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  else
    posix_spawn_file_actions_adddup2(&files, input, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const int failed = posix_spawn(&pid_, argv[0].c_str(), &files, &attributes, Pointers(argv).data(),
                                 Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    fprintf(stderr, "cannot start %s\n", argv[0].c_str());
    abort();
  }
  ended_ = false;
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
}

Child::Child(Child&& other) noexcept { *this = std::move(other); }

Child& Child::operator=(Child&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(ended_, other.ended_);
  std::swap(status_, other.status_);
  return *this;
}

bool Child::EndsWithin(absl::Duration duration) {
  if (ended_) return true;
  pollfd set = {pidfd_, POLLIN, 0};
  poll(&set, 1, static_cast<int>(absl::ToInt64Milliseconds(duration)));
  return Reap();
}

void Child::Signal(int number) const {
  if (!ended_) kill(pid_, number);
}

void Child::Kill() {
  Signal(SIGKILL);
  while (!EndsWithin(absl::Seconds(1))) {
  }
}

void Child::Abandon() {
  if (pidfd_ >= 0) close(std::exchange(pidfd_, -1));
  ended_ = true;
}

bool Child::Reap() {
  if (ended_ || waitpid(pid_, &status_, WNOHANG) != pid_) return ended_;
  close(std::exchange(pidfd_, -1));
  return ended_ = true;
}

int Child::signal() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }
int Child::exit_code() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }

}  // namespace snug::crash
