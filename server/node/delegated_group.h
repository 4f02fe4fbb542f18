// The control group (v2) of a daemon that starts workers itself, where it has one to itself: as the
// first process of a container, or of a scope that is handed over (systemd-run -p Delegate=yes).
//
// Taken over, it has two kinds of groups in it: daemon, which this process moves into, and one for
// each worker, which the worker's shim makes and removes (server/shim/cgroup.h).
#ifndef SERVER_NODE_DELEGATED_GROUP_H_
#define SERVER_NODE_DELEGATED_GROUP_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::server {

// The folder for groups of workers; what earlier shims have left in it is removed. `root` replaces
// "/", for tests. FAILED_PRECONDITION says what is missing: version 2, a controller, a group that
// nobody else is in; or the kernel's own error. Nothing is changed then, but for a folder daemon.
absl::StatusOr<std::string> TakeDelegatedGroup(const std::string& root = "");

}  // namespace snug::server

#endif  // SERVER_NODE_DELEGATED_GROUP_H_
