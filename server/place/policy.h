// Who runs next, where, and under which plan: a pure function from a snapshot of queue and devices
// to actions.
//
// Higher priority first, then first come. Nobody jumps the queue: a device on which an older job
// could ever run is not given to a younger one while the older waits. One job per device for now.
// Of several free devices a GPU comes before a CPU, whatever the plan there: no plan is as slow as
// the CPU; then the faster plan, then the order of configuration.
// Stateless and idempotent: the same snapshot always gives the same answer.
#ifndef SERVER_PLACE_POLICY_H_
#define SERVER_PLACE_POLICY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace snug::server {

struct QueuedJob {
  std::string id;
  int priority = 0;
  int64_t order = 0;                 // Of arrival.
  int64_t not_before_us = 0;         // Wall time; a job that waits for its retry blocks nobody.
  std::string retry_cause;           // Why it was not done the last time; or empty.
  int64_t budget_bytes = INT64_MAX;  // The user's own limit.
  std::map<std::string, std::vector<int64_t>>
      plan_bytes;  // By device (threads differ): fastest plan first.
};

struct DeviceState {
  std::string name;
  bool gpu = false;
  int64_t capacity_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t taken_bytes = 0;  // Of the capacity, by processes that are not ours, as measured.
  std::string trouble;      // Why nothing new goes there, whatever is free; or empty.
  int jobs = 0;
};

struct Placement {
  std::string job;
  std::string device;
  int plan = 0;       // Index into plan_bytes of the device.
  int64_t bytes = 0;  // To reserve.
};

struct Decision {
  std::vector<Placement> placements;
  std::map<std::string, std::string> waiting;  // Job -> why, in one sentence.
  std::vector<std::string> infeasible;  // Fit on no device, however empty, within their budget.
};

Decision Decide(std::vector<QueuedJob> queue, std::vector<DeviceState> devices, int64_t now_us);

// By capacity; there is at least one device.
DeviceState LargestOf(const std::vector<DeviceState>& devices);

}  // namespace snug::server

#endif  // SERVER_PLACE_POLICY_H_
