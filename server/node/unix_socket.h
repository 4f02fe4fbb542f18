// Listening unix sockets of the daemon.
#ifndef SERVER_NODE_UNIX_SOCKET_H_
#define SERVER_NODE_UNIX_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace snug::server {

// A listening socket at `path` with this mode. Replaces a stale socket of our own; refuses a
// symbolic link, a file, another user's socket, one on which somebody answers, and a path longer
// than the 107 bytes that an address holds.
absl::StatusOr<int> ListenUnix(const std::string& path, mode_t mode);

// FAILED_PRECONDITION unless `dir` is a folder, no link, that belongs to this user and that nobody
// else can write to.
absl::Status CheckPrivateFolder(const std::string& dir);

}  // namespace snug::server

#endif  // SERVER_NODE_UNIX_SOCKET_H_
