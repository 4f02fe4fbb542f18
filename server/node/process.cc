#include "server/node/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include "absl/strings/string_view.h"

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/node/clock.h"

namespace snug::server {
namespace {

// Of CUDA's variables only what says which GPU, and where compiled code is kept: others change what
// a job computes (NVIDIA_TF32_OVERRIDE) or how fast (CUDA_LAUNCH_BLOCKING), and a job's file alone
// may do that.
constexpr absl::string_view kAllowed[] = {
    "PATH=",
    "HOME=",
    "LANG=",
    "LC_",
    "TMPDIR=",
    "TZ=",
    "LD_LIBRARY_PATH=",
    "OMP_",
    "MKL_",
    "ONEDNN_",
    "ATEN_",
    "SNUG_",
    "CUDA_CACHE_",
    "CUDA_DEVICE_ORDER=",
    "CUDA_VISIBLE_DEVICES=",
    "PYTHON",
    "VIRTUAL_ENV=",
    "ASAN_OPTIONS=",
    "LSAN_OPTIONS=",
    "UBSAN_OPTIONS=",
    "TSAN_OPTIONS=",
};
constexpr int kPollMs = 50;
constexpr int kFirstPassed = 3;

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// One end of a child's output: keeps the tail and hands out whole lines.
class Capture {
 public:
  explicit Capture(std::function<void(const std::string&)> on_line)
      : on_line_(std::move(on_line)) {}

  absl::StatusOr<int> Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    fd_ = ends[0];
    fcntl(fd_, F_SETFL, O_NONBLOCK);
    return ends[1];
  }
  ~Capture() {
    if (fd_ >= 0) close(fd_);
  }
  void Drain() {
    char buffer[4096];
    ssize_t got;
    while ((got = read(fd_, buffer, sizeof buffer)) > 0) Add({buffer, static_cast<size_t>(got)});
  }
  int fd() const { return fd_; }
  const std::string& text() const { return text_; }

 private:
  void Add(absl::string_view bytes) {
    absl::StrAppend(&text_, bytes);
    if (text_.size() > kMaxCaptureBytes) text_.erase(0, text_.size() - kMaxCaptureBytes);
    if (!on_line_) return;
    for (char c : bytes) {
      if (c != '\n') {
        if (line_.size() < kMaxCaptureBytes) line_ += c;
        continue;
      }
      on_line_(line_);
      line_.clear();
    }
  }

  std::function<void(const std::string&)> on_line_;
  int fd_ = -1;
  std::string text_;
  std::string line_;
};

absl::Status StillWanted(const RunOptions& options, absl::Duration deadline) {
  if (options.cancelled != nullptr && options.cancelled->load())
    return absl::CancelledError("cancelled");
  if (SinceBoot() > deadline)
    return absl::DeadlineExceededError(absl::StrCat(options.argv.front(), " took longer than ",
                                                    absl::FormatDuration(options.timeout)));
  return absl::OkStatus();
}

void Set(const std::string& variable, std::vector<std::string>& environment) {
  const std::string name = variable.substr(0, variable.find('=') + 1);
  std::erase_if(environment, [&](const std::string& had) { return absl::StartsWith(had, name); });
  environment.push_back(variable);
}

void KillGroup(pid_t pid) {
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

std::vector<std::string> ChildEnvironment(const std::vector<std::string>& more) {
  std::vector<std::string> allowed;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    for (absl::string_view prefix : kAllowed) {
      if (!absl::StartsWith(*entry, prefix)) continue;
      allowed.emplace_back(*entry);
      break;
    }
  }
  // Workers share the machine: a thread that waits for another must give its core away, not spin on
  // it. Two jobs and a compiler on two cores: 0.08 s a step against 1.6 s.
  if (getenv("OMP_WAIT_POLICY") == nullptr) allowed.emplace_back("OMP_WAIT_POLICY=passive");
  for (const std::string& variable : more) Set(variable, allowed);
  return allowed;
}

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  absl::Cleanup destroy = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  for (const auto& [from, to] : {std::pair{options.stdout_fd, 1}, {options.stderr_fd, 2}}) {
    if (from >= 0)
      posix_spawn_file_actions_adddup2(&files, from, to);
    else
      posix_spawn_file_actions_addopen(&files, to, "/dev/null", O_WRONLY, 0);
  }
  // Copied out of the way first, so that none is overwritten before it is passed.
  std::vector<int> copies;
  const absl::Cleanup close_copies = [&] {
    for (int copy : copies) close(copy);
  };
  const int beyond = kFirstPassed + static_cast<int>(options.passed_fds.size());
  for (int fd : options.passed_fds) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, beyond);
    if (copy < 0) return absl::ErrnoToStatus(errno, "cannot pass a descriptor");
    posix_spawn_file_actions_adddup2(&files, copy, kFirstPassed + static_cast<int>(copies.size()));
    copies.push_back(copy);
  }
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (options.own_group) flags |= POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&attributes, flags);
  std::vector<std::string> argv = options.argv;
  std::vector<std::string> environment = ChildEnvironment(options.environment);
  if (FAILS_AT("spawn.begin")) return absl::ErrnoToStatus(EAGAIN, "a failed spawn");
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0].c_str(), &files, &attributes, Pointers(argv).data(),
                                 Pointers(environment).data());
  FAILPOINT("spawn.done");
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", argv[0]));
  return pid;
}

absl::StatusOr<RunResult> Run(const RunOptions& options) {
  Capture out(nullptr), err(options.on_stderr_line);
  ASSIGN_OR_RETURN(const int out_fd, out.Open());
  absl::Cleanup close_out = [&] { close(out_fd); };
  ASSIGN_OR_RETURN(const int err_fd, err.Open());
  absl::Cleanup close_err = [&] { close(err_fd); };
  ASSIGN_OR_RETURN(const pid_t pid, Spawn({.argv = options.argv,
                                           .environment = options.environment,
                                           .stdout_fd = out_fd,
                                           .stderr_fd = err_fd,
                                           .passed_fds = options.passed_fds,
                                           .own_group = true}));
  const absl::Duration deadline = SinceBoot() + options.timeout;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    absl::Status wanted = StillWanted(options, deadline);
    if (!wanted.ok()) {
      KillGroup(pid);
      return wanted;
    }
    pollfd ends[] = {{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}};
    poll(ends, 2, kPollMs);
    out.Drain();
    err.Drain();
  }
  out.Drain();
  err.Drain();
  RunResult result{.out = out.text(), .err = err.text()};
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace snug::server
