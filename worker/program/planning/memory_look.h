// What a worker's process has of its device by two counts: what was counted, by the worker itself,
// and what was seen, by who gives the memory. Where they differ, something is taken that nobody has
// promised. Pure.
//
// On a CPU the kernel sees the process's resident pages, and says so in the worker as well. On a
// GPU the driver tells a worker what the whole GPU has less since the process has a context
// (cudaMemGetInfo), whoever took it; of one process it tells the node alone (NVML). So where the
// node is told, its word is what was seen, and the worker's own looks say when that came about.
// Elsewhere, as in a container with process ids of its own, the looks are all there is.
//
// Less may be seen than was counted: pages that nobody has touched yet, kernels that the job does
// not use. That does no harm, and nothing is said of it.
#ifndef WORKER_PROGRAM_PLANNING_MEMORY_LOOK_H_
#define WORKER_PROGRAM_PLANNING_MEMORY_LOOK_H_

#include <cstdint>
#include <string>
#include <vector>

namespace snug::program {

struct MemoryLook {
  int64_t steps = 0;  // Made under the plan in force.
  int64_t counted_bytes = 0;
  int64_t seen_bytes = 0;  // 0: nobody says.
};

// Once everything is loaded; behind the step that loads kernels; and twice more, for what is lost
// with each step.
inline constexpr int64_t kLooksBehind[] = {0, 1, 2, 5};
bool IsLookDue(int64_t steps);

struct Uncounted {
  int64_t bytes = 0;  // Seen beyond what was predicted and counted; below 0: less was seen.
  // Empty up to 64 MiB, and up to 1 %. Else it names the part, unless looks show neighbours too.
  std::string warning;
};

// `looks`: all under the plan in force, in their order, one at least. `process_bytes`: what the
// GPU's driver says now of the process alone; 0: nothing.
Uncounted UncountedOf(int64_t predicted_bytes, const std::vector<MemoryLook>& looks,
                      int64_t process_bytes);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_MEMORY_LOOK_H_
