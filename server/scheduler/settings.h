// What the scheduler is made for.
#ifndef SERVER_SCHEDULER_SETTINGS_H_
#define SERVER_SCHEDULER_SETTINGS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/inspect/inspector.h"
#include "server/job/tenants.h"
#include "server/node/node.h"
#include "server/place/devices.h"
#include "server/scheduler/fair_pool.h"
#include "server/scheduler/limits.h"

namespace snug::server {

struct SchedulerSettings {
  std::string state_dir;
  std::unique_ptr<Node> node;
  std::vector<Device> devices;
  int64_t host_bytes = INT64_MAX;  // Of the host's memory, that plans may use beside devices.
  Inspector& inspector;
  FairPool::Threads prepares = {.any = 1, .small = 1};
  SchedulerLimits limits;
  Tenants tenants;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_SETTINGS_H_
