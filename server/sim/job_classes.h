// What jobs of the simulator train: shapes of public models, as the planner sees them. Their plans
// are the planner's own, for a GPU of the kind that is simulated.
#ifndef SERVER_SIM_JOB_CLASSES_H_
#define SERVER_SIM_JOB_CLASSES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/place/device_kinds.h"
#include "server/sim/job.h"

namespace snug::server::sim {

struct JobClass {
  std::string name;
  double weight = 1.0;  // How often it is drawn, against the others.
  Frontier plans;
};

// All classes, each with the plans that the daemon would place it with on such a device.
absl::StatusOr<std::vector<JobClass>> PlanClasses(const DeviceKind& kind, int64_t capacity_bytes);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_JOB_CLASSES_H_
