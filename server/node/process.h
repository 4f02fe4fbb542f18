// Child processes: started with posix_spawn, with an environment from an allow-list and no
// inherited descriptors.
#ifndef SERVER_NODE_PROCESS_H_
#define SERVER_NODE_PROCESS_H_

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace snug::server {

struct SpawnOptions {
  std::vector<std::string> argv;
  std::vector<std::string> environment = {};  // "NAME=value", over what ChildEnvironment gives.
  int stdout_fd = -1;                         // -1: /dev/null
  int stderr_fd = -1;
  std::vector<int> passed_fds = {};  // Become descriptors 3, 4, ... of the child.
  bool own_group = false;
};

// The child ignores no signal and blocks none.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

struct RunOptions {
  std::vector<std::string> argv;
  std::vector<std::string> environment = {};
  std::vector<int> passed_fds = {};  // Likewise.
  absl::Duration timeout;
  const std::atomic<bool>* cancelled = nullptr;            // Polled; ends the run with CANCELLED.
  std::function<void(const std::string&)> on_stderr_line;  // Each whole line, as it comes.
};

struct RunResult {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;  // The last kMaxCaptureBytes of each.
  std::string err;
};

inline constexpr size_t kMaxCaptureBytes = 64 << 10;

// Runs to the end, or kills the child's process group: DEADLINE_EXCEEDED, CANCELLED.
absl::StatusOr<RunResult> Run(const RunOptions& options);

// The variables of this process that its children may see, as "NAME=value", and `more` over them.
std::vector<std::string> ChildEnvironment(const std::vector<std::string>& more = {});

}  // namespace snug::server

#endif  // SERVER_NODE_PROCESS_H_
