// What a child process takes of a device's memory, seen from outside it. (A process cannot see what
// its own first call of CUDA takes: to ask is to have taken it.)
#ifndef WORKER_EXECUTE_GPU_CHILD_MEMORY_H_
#define WORKER_EXECUTE_GPU_CHILD_MEMORY_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::execute {

struct MemoryProbe {
  // In this process, any number of times: what the device has free.
  std::function<absl::StatusOr<int64_t>()> free_bytes;
  // In the child: takes the memory, and says how much of it the child saw go. An error fails the
  // measurement.
  std::function<absl::StatusOr<int64_t>()> take;
};

struct ChildMemory {
  int64_t taken_bytes = 0;
  int64_t unseen_bytes = 0;  // Of these, before the child could look.
};

// Forks: before the process has threads or a device. What is taken is the larger of two
// differences, when the child has taken its memory and when it is gone. Another process that takes
// or gives back memory between them falsifies one of them; of a device in use the result is an
// estimate.
absl::StatusOr<ChildMemory> BytesTakenByChild(const MemoryProbe& probe);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_CHILD_MEMORY_H_
