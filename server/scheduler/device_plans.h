// The plans of a job on each device that there is.
#ifndef SERVER_SCHEDULER_DEVICE_PLANS_H_
#define SERVER_SCHEDULER_DEVICE_PLANS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "server/job/check_job.h"
#include "server/place/devices.h"
#include "server/place/ledger.h"
#include "server/place/shared_weights.h"
#include "server/scheduler/plan_cache.h"

namespace snug::server {

// For every share of threads that a worker may have there: those of the largest share first. What a
// job can be placed with: plans kForPlacing.
absl::StatusOr<SharedPlans> PlansByShare(const std::vector<Device>& devices, const CheckedJob& job,
                                         const RowLengths& lengths);

// What of it is held in common with other jobs.
SharedWeights SharedBy(const v1::Plan& plan);

// For an attempt under the plan, with so many bytes of its device.
Promise PromiseOf(const v1::Plan& plan, int64_t bytes);

// What is reserved for a plan: its peak, and more room after each time that it was not enough.
int64_t CapOf(const v1::Plan& plan, int oom_failures, double margin);

// Whether a worker under the first plan could go to the second: it keeps its threads, and gets no
// more of the host's memory than it has, which is not given out again while it runs.
bool CouldGoTo(const v1::Plan& plan, const v1::Plan& other);

// Of the largest of the plans that a worker under `plan` could go to, also once one more was not
// enough.
int64_t MostOf(const std::vector<v1::Plan>& plans, const v1::Plan& plan, int oom_failures,
               double margin);

// For a worker that has the device for itself.
absl::StatusOr<SharedPlans> PlansOn(const std::vector<Device>& devices, const CheckedJob& job,
                                    const RowLengths& lengths, PlansWanted wanted);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_DEVICE_PLANS_H_
