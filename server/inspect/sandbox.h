// What a process that reads strangers' files gives up before it reads the first byte of them: its
// rights, the network, every other file, more memory and CPU time than it needs, and every system
// call but those that reading open files takes.
#ifndef SERVER_INSPECT_SANDBOX_H_
#define SERVER_INSPECT_SANDBOX_H_

#include <cstdint>

#include "absl/status/status.h"

namespace snug::server {

struct SandboxLimits {
  // The text of a tokenizer.json is 256 MiB at most, the index of 200,000 tensors 100 MB.
  int64_t memory_bytes = int64_t{1} << 30;
  int cpu_seconds = 20;
};

// For good. An error when anything of it cannot be given up, but for this: who is not root keeps
// his user and his network namespace, and the calls alone keep him from using either.
absl::Status EnterSandbox(const SandboxLimits& limits);

}  // namespace snug::server

#endif  // SERVER_INSPECT_SANDBOX_H_
