// Where gradients and the optimizer's state are, of a job that leaves it to the daemon (`auto`). As
// with its sizes, the answer is part of the job from then on.
#ifndef SERVER_SCHEDULER_AUTO_MEMORY_H_
#define SERVER_SCHEDULER_AUTO_MEMORY_H_

#include <vector>

#include "absl/status/status.h"
#include "server/job/check_job.h"
#include "server/place/devices.h"
#include "server/plan/planner.h"

namespace snug::server {

// Whether FillAutoMemory has something to choose.
bool LeavesMemoryOpen(const std::vector<Device>& devices, const CheckedJob& job);

// memory.gradients and memory.optimizer, where they are open and the job may have either: those of
// the fastest plan that fits a device; kept, and on the device, where nothing is gained by less;
// released, and on the device, where none fits, so that what is refused says the least. Sizes are
// known.
absl::Status FillAutoMemory(const std::vector<Device>& devices, const RowLengths& lengths,
                            CheckedJob& job);

// Before sizes that are open are looked for: what one row of the shortest length needs, where that
// does not fit otherwise. Else all stays open until the sizes are known.
absl::Status FillMemoryForSizes(const std::vector<Device>& devices, const RowLengths& lengths,
                                CheckedJob& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_AUTO_MEMORY_H_
