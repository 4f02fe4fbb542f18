// What an UpdateJobRequest makes of a job: its priority and its labels.
#ifndef SERVER_SCHEDULER_JOB_UPDATE_H_
#define SERVER_SCHEDULER_JOB_UPDATE_H_

#include "absl/status/status.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// What its mask names, and only that; without one, what the request has. An error names the field
// that cannot be taken; the job may be half updated then.
absl::Status UpdateJob(const v1::UpdateJobRequest& request, v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_JOB_UPDATE_H_
