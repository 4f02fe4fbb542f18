// What a job has made, fetched file by file: from where an earlier try has ended, over restarts of
// the daemon, and each compared with the hash that the daemon says.
#ifndef CLIENT_ARTIFACTS_H_
#define CLIENT_ARTIFACTS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/command_line.h"
#include "client/connection.h"
#include "client/output_folder.h"
#include "snug/v1/service.pb.h"

namespace snug::client {

// Of the job, or the checkpoint, that the command line names. By their paths; an error for a path
// that leads out of a folder.
absl::StatusOr<std::vector<v1::Artifact>> ArtifactsOf(Connection& connection,
                                                      const CommandLine& line);

// All of them, whole. DATA_LOSS: one is not what the daemon says that it is.
absl::Status Fetch(Connection& connection, const std::vector<v1::Artifact>& artifacts,
                   OutputFolder& folder);

}  // namespace snug::client

#endif  // CLIENT_ARTIFACTS_H_
