// The processor of this machine, and how much memory it, or the control group that the daemon
// lives in, allows.
#ifndef SERVER_PLACE_HOST_MEMORY_H_
#define SERVER_PLACE_HOST_MEMORY_H_

#include <cstdint>
#include <string>

namespace snug::server {

// The smallest of MemTotal and the limits of the control groups above this process (v2, and v1
// where it is still mounted). `root` stands before /proc and /sys; tests plant files there.
int64_t HostMemoryBytes(const std::string& root = "");

// As the kernel names the first one; or empty.
std::string ProcessorModel(const std::string& root = "");

}  // namespace snug::server

#endif  // SERVER_PLACE_HOST_MEMORY_H_
