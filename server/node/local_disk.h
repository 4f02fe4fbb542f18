// Where the state folder may be: on a file system whose locks and fsync are the kernel's own.
#ifndef SERVER_NODE_LOCAL_DISK_H_
#define SERVER_NODE_LOCAL_DISK_H_

#include <string>

#include "absl/status/status.h"

namespace snug::server {

// FAILED_PRECONDITION: `folder` is on a network's file system (NFS, SMB, Lustre), or on one that a
// process serves (FUSE).
absl::Status CheckLocalDisk(const std::string& folder);

}  // namespace snug::server

#endif  // SERVER_NODE_LOCAL_DISK_H_
