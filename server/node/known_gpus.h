// The GPUs that a daemon has had: what it goes on with when it is started while one of them cannot
// be used.
#ifndef SERVER_NODE_KNOWN_GPUS_H_
#define SERVER_NODE_KNOWN_GPUS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/place/devices.h"

namespace snug::server {

// Of <state>/gpus.json; one that is not there or damaged knows none.
KnownGpus ReadKnownGpus(const std::string& state_dir);

// Those of these devices, for the next start.
absl::Status WriteKnownGpus(const std::string& state_dir, const std::vector<Device>& devices);

}  // namespace snug::server

#endif  // SERVER_NODE_KNOWN_GPUS_H_
