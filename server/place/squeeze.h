// Which plans the jobs of one device should have. Pure.
//
// A device's throughput is the sum over its jobs of 2^priority times the job's speed: the seconds
// of a step under its fastest plan, divided by those under the plan that it has. A job that does
// not fit is made room for when it adds more to this sum than its neighbours lose. Bytes that
// nobody waits for are given to jobs that gain by them.
#ifndef SERVER_PLACE_SQUEEZE_H_
#define SERVER_PLACE_SQUEEZE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snug::server {

// What of a plan counts here.
struct PlanOption {
  int64_t bytes = 0;     // To reserve.
  double seconds = 1.0;  // Of a step; in any unit that all plans of the job share.
};

struct SqueezableJob {
  std::string job;
  int priority = 0;
  std::vector<PlanOption> plans;  // In any order; not empty.
  int current = 0;                // Index into plans; of a job that waits it means nothing.
};

struct PlanMove {
  std::string job;
  int plan = 0;  // Index into its plans.
};

struct RoomMade {
  std::vector<PlanMove> moves;  // To plans of fewer bytes.
  double gain = 0.0;            // Of throughput, as a multiple of the newcomer's weight. Above 0.
};

// Index of the fastest plan of at most so many bytes (of equally fast ones the smallest), or -1.
int FastestPlanWithin(const std::vector<PlanOption>& plans, int64_t bytes);

// Room for `newcomer`, which has no plan that fits in `free_bytes`, at the largest gain. Nothing:
// no squeeze of the neighbours makes enough room, or none gains.
std::optional<RoomMade> MakeRoom(const SqueezableJob& newcomer,
                                 const std::vector<SqueezableJob>& neighbours, int64_t free_bytes);

// Moves to faster plans, which together take at most `free_bytes` more than those they replace.
std::vector<PlanMove> FillRoom(const std::vector<SqueezableJob>& jobs, int64_t free_bytes);

}  // namespace snug::server

#endif  // SERVER_PLACE_SQUEEZE_H_
