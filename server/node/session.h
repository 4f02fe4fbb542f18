// Processes of one attempt: a shim leads a session of its own, and it and everything below it is
// marked with SNUG_ATTEMPT=<attempt dir> in the environment. Both must match before anything is
// signalled, so that a recycled number never hits a stranger.
//
// What cannot be looked at is an error, never "nobody": by a session that is empty the daemon
// decides that the next attempt may start.
#ifndef SERVER_NODE_SESSION_H_
#define SERVER_NODE_SESSION_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snug::server {

// Pids of the session's processes with that mark, the leader left out.
absl::StatusOr<std::vector<pid_t>> SessionMembers(pid_t session, const std::string& attempt_dir);

// Whether this process leads a session and has that mark.
absl::StatusOr<bool> LeadsSession(pid_t pid, const std::string& attempt_dir);

// The attempt dir that this process is marked with; empty: none, or no such process of ours.
absl::StatusOr<std::string> AttemptOf(pid_t pid);

// Of all processes that are marked with an attempt dir below `folder`: which one. Those of other
// users are left out where they are not for us to see.
absl::StatusOr<std::map<pid_t, std::string>> ProcessesOfAttempts(const std::string& folder);

// Sends the signal to each of them, and to those that are known where one is not. Returns how many
// were signalled. A process is pinned before it
// is checked: a pid that was recycled in between is not hit.
absl::StatusOr<int> SignalSession(pid_t session, const std::string& attempt_dir, int signal);

}  // namespace snug::server

#endif  // SERVER_NODE_SESSION_H_
