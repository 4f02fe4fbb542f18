// Processes that a service manager starts for the daemon, each in a unit of its own.
#ifndef SERVER_NODE_REMOTE_SPAWN_H_
#define SERVER_NODE_REMOTE_SPAWN_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/node/process.h"

namespace snug::server {

// As Spawn, of what snug-launch behind this unix socket starts; its outputs go where its unit sends
// them. The process is no child of ours: who started it collects it. One of `options.passed_fds` is
// needed.
absl::StatusOr<pid_t> SpawnAt(const std::string& socket, const SpawnOptions& options);

}  // namespace snug::server

#endif  // SERVER_NODE_REMOTE_SPAWN_H_
