// The files of an ended job: how many bytes of them there are, and their removal.
#ifndef SERVER_RETENTION_LEAVINGS_H_
#define SERVER_RETENTION_LEAVINGS_H_

#include <string>

#include "server/retention/sweep.h"

namespace snug::server {

// On the disk, of all that lies below a folder, as the file system counts them. 0: there is none.
int64_t BytesBelow(const std::string& folder);

// Of <state_dir>/jobs/<job>, as the file system counts them. What cannot be read counts nothing.
Leavings LeavingsOf(const std::string& state_dir, const std::string& job);

// The logs of all its attempts, less what belongs to its output.
void RemoveLogs(const std::string& state_dir, const std::string& job);

// A folder and all below it; says in the log what stays.
void RemoveFolder(const std::string& folder);

}  // namespace snug::server

#endif  // SERVER_RETENTION_LEAVINGS_H_
