// A job file and its overrides as the JobSpec that the daemon is asked for.
#ifndef CLIENT_JOB_FILE_H_
#define CLIENT_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "snug/v1/job.pb.h"

namespace snug::client {

// Reads `file`, applies `overrides` (key=value), makes its paths absolute (model, dataset,
// eval_dataset, lora.init_adapter, relative to the file's folder; a model that is no path there but
// spelled like a job's id stays as it is), and names the job after the file when it has no name.
// Whether the paths exist is for the daemon to say.
absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& file,
                                        const std::vector<std::string>& overrides);

}  // namespace snug::client

#endif  // CLIENT_JOB_FILE_H_
