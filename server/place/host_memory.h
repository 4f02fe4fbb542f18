// How much memory this machine, or the control group that the daemon lives in, allows.
#ifndef SERVER_PLACE_HOST_MEMORY_H_
#define SERVER_PLACE_HOST_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/place/ledger.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// The smallest of MemTotal and the limits of the control groups above this process (v2, and v1
// where it is still mounted). `root` stands before /proc and /sys; tests plant files there.
int64_t HostMemoryBytes(const std::string& root = "");

// The devices of a configuration; none given: cpu:0 with half of the host's memory.
absl::StatusOr<std::vector<Device>> DevicesOf(const v1::DaemonConfig& config, int64_t host_bytes,
                                              int cores);

}  // namespace snug::server

#endif  // SERVER_PLACE_HOST_MEMORY_H_
