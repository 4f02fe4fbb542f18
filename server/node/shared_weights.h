// Where workers of one machine keep weights that they share, and how these go: what no worker holds
// a lock on (worker/weights/shared_file.h) nobody uses.
#ifndef SERVER_NODE_SHARED_WEIGHTS_H_
#define SERVER_NODE_SHARED_WEIGHTS_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::server {

// Of this boot of the machine: what a machine that fell over left of a file may have its size, and
// nothing in it. UNAVAILABLE: nobody can say now which boot this is.
absl::StatusOr<std::string> SharedWeightsDir(const std::string& state_dir);

// Removes what no worker uses, and all of earlier boots. A worker that is about to open one of them
// makes it again. Where nobody can say which boot this is, nothing is removed.
void SweepSharedWeights(const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_NODE_SHARED_WEIGHTS_H_
