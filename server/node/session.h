// Processes of one attempt: a shim leads a session of its own and marks everything below it with
// SNUG_ATTEMPT=<attempt dir> in the environment. Both must match before anything is signalled, so
// that a recycled number never hits a stranger.
#ifndef SERVER_NODE_SESSION_H_
#define SERVER_NODE_SESSION_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace snug::server {

// Pids of the session's processes with that mark, the leader left out.
std::vector<pid_t> SessionMembers(pid_t session, const std::string& attempt_dir);

// The attempt dir that this process is marked with; empty: none, or no such process of ours.
std::string AttemptOf(pid_t pid);

// Sends the signal to each of them. Returns how many were signalled. A process is pinned before it
// is checked: a pid that was recycled in between is not hit.
int SignalSession(pid_t session, const std::string& attempt_dir, int signal);

}  // namespace snug::server

#endif  // SERVER_NODE_SESSION_H_
