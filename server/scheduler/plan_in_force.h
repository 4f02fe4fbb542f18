// What a job's record says of the plan that its attempt runs under.
#ifndef SERVER_SCHEDULER_PLAN_IN_FORCE_H_
#define SERVER_SCHEDULER_PLAN_IN_FORCE_H_

#include <cstdint>

#include "snug/v1/job.pb.h"

namespace snug::server {

// Writes `plan` into the record, and of its memory what the plan promises: `bytes` are reserved on
// the device for it.
void PutInForce(const v1::Plan& plan, int64_t bytes, v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_PLAN_IN_FORCE_H_
