// What the kernel says of another process's memory.
#ifndef SERVER_NODE_PROCESS_MEMORY_H_
#define SERVER_NODE_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstdint>

namespace snug::server {

// The most that was ever resident of it, pages of mapped files included; 0: there is no such
// process, or nobody says.
int64_t PeakResidentBytes(pid_t process);

}  // namespace snug::server

#endif  // SERVER_NODE_PROCESS_MEMORY_H_
