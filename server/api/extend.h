// A job that goes on where an ended one has stopped.
#ifndef SERVER_API_EXTEND_H_
#define SERVER_API_EXTEND_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/job/principal.h"
#include "server/job/records.h"
#include "server/scheduler/entry.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// For `who` extends it: with the spec of `parent`, but for its steps: those of its newest
// checkpoint and as many more. An error where it has not ended, or has no checkpoint. Reads no
// checkpoint.
absl::StatusOr<CreateOrder> OrderToExtend(const JobRecord& parent,
                                          const v1::ExtendJobRequest& request, const Principal& who,
                                          const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_API_EXTEND_H_
