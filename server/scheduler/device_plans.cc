#include "server/scheduler/device_plans.h"

#include "proto/snug/status_macros.h"

namespace snug::server {

absl::StatusOr<DevicePlans> PlansOn(const std::vector<Device>& devices, const CheckedJob& job,
                                    const RowLengths& lengths) {
  std::map<PlanMachine, std::vector<v1::Plan>> made;
  DevicePlans plans;
  for (const Device& device : devices) {
    const PlanMachine machine = MachineOf(device);
    if (!made.contains(machine)) {
      ASSIGN_OR_RETURN(made[machine], PlansFor(job.program, job.spec, lengths, machine));
    }
    plans[device.name] = made[machine];
  }
  return plans;
}

}  // namespace snug::server
