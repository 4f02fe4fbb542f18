// Who runs next, where, and under which plan: a pure function from a snapshot of queue and devices
// to actions.
//
// A device runs as many jobs at once as its bytes hold. Higher priority first, then first come; a
// job gets the fastest plan that fits what is free, and what its owner's other jobs leave of his
// share; one that waits for its owner's share alone, or is kept off every device
// (RunningJob::bears), holds nobody up. Where another must wait, younger ones go past it as far as
// they leave its start where it is (room.h). Of several devices with room a GPU comes before a CPU,
// whatever the plan there: no plan is as slow as the CPU; then the faster plan, then the device
// with fewer jobs, then the order of configuration. Stateless and idempotent: the same snapshot
// always gives the same answer.
#ifndef SERVER_PLACE_POLICY_H_
#define SERVER_PLACE_POLICY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/place/job_queue.h"

namespace snug::server {

// A process each, and a share of the device's threads. More of them would not fit most devices, and
// would wait for each other on all.
inline constexpr int kMaxJobsPerDevice = 64;

// The longest wait for a retry: ten minutes and a fifth (server/node/outcome.h).
inline constexpr int64_t kLongestRetryWaitUs = int64_t{12} * 60 * 1'000'000;

// Whether a job still waits for that wall time. One that is further away than any wait counts as
// past: the clock has been set back since, and nobody waits longer because of that.
inline bool IsAwaited(int64_t time_us, int64_t now_us) {
  return time_us > now_us && time_us - now_us <= kLongestRetryWaitUs;
}

// An attempt that has its bytes.
struct RunningJob {
  JobQueue::Key key;  // Its place in the queue's order, were it still there.
  int64_t bytes = 0;
  SharedWeights shared = {};   // Of these.
  int64_t end_us = INT64_MAX;  // Wall time, by estimate; INT64_MAX: nobody knows.
  std::string owner;           // Where he has a share.
  // So many others on its device; beside more it was slower than it allows. While there are as
  // many, jobs that are behind it in line are kept off.
  int bears = INT32_MAX;
};

struct DeviceState {
  std::string name;
  bool gpu = false;
  int64_t capacity_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t taken_bytes = 0;  // Of the capacity, by processes that are not ours, as measured.
  std::string trouble;      // Why nothing new goes there, whatever is free; or empty.
  int jobs = 0;
  int max_jobs = kMaxJobsPerDevice;
  std::vector<int> shares;  // ThreadShares; empty: threads do not matter.
  // Those of `reserved_bytes` that something is known of.
  std::vector<RunningJob> running;
  SharedCount shared;  // Of the same bytes.
  // Of the host's memory, for all devices together: what plans may use, and what is free of it.
  int64_t host_capacity_bytes = INT64_MAX;
  int64_t host_free_bytes = INT64_MAX;
};

struct Placement {
  std::string job;
  std::string device;
  int plan = 0;       // Index into the job's plans on the device.
  int64_t bytes = 0;  // To reserve, what is shared among them.
};

struct Decision {
  std::vector<Placement> placements;
  std::map<std::string, std::string> waiting;  // Job -> why, in one sentence.
  std::vector<std::string> infeasible;  // Fit on no device, however empty, within their budget.
  int64_t next_us = 0;  // When the first of those that wait for their time may start; 0: none.
  // The first that could run now and has no room; empty: there is none, or what is ahead of it is
  // not known yet.
  std::string head;
};

// One round. Ends as soon as nothing can be placed any more and the head is found, so `waiting` is
// left empty.
Decision Decide(const JobQueue& queue, std::vector<DeviceState> devices, int64_t now_us);

// Why each of these jobs waits, as `waiting` has it; those that would be placed have no reason.
std::map<std::string, std::string> ReasonsToWait(const JobQueue& queue,
                                                 std::vector<DeviceState> devices, int64_t now_us,
                                                 const std::set<std::string>& jobs);

// Both, over all of a few jobs.
Decision Decide(std::vector<QueuedJob> queue, std::vector<DeviceState> devices, int64_t now_us);

// On some device, were it empty.
bool CouldEverRun(const QueuedJob& job, const std::vector<DeviceState>& devices);

// By capacity; there is at least one device.
DeviceState LargestOf(const std::vector<DeviceState>& devices);

}  // namespace snug::server

#endif  // SERVER_PLACE_POLICY_H_
