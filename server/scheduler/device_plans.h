// The plans of a job on each device that there is.
#ifndef SERVER_SCHEDULER_DEVICE_PLANS_H_
#define SERVER_SCHEDULER_DEVICE_PLANS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/job/check_job.h"
#include "server/place/devices.h"
#include "server/plan/planner.h"

namespace snug::server {

using DevicePlans = std::map<std::string, std::vector<v1::Plan>>;  // By device, fastest first.

// Devices of the same machine (threads, kind, context) share their plans: made once.
absl::StatusOr<DevicePlans> PlansOn(const std::vector<Device>& devices, const CheckedJob& job,
                                    const RowLengths& lengths);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_DEVICE_PLANS_H_
