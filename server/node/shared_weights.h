// Where workers of one machine keep weights that they share, and how these go: what no worker holds
// a lock on (worker/weights/shared_file.h) nobody uses.
#ifndef SERVER_NODE_SHARED_WEIGHTS_H_
#define SERVER_NODE_SHARED_WEIGHTS_H_

#include <string>

namespace snug::server {

std::string SharedWeightsDir(const std::string& state_dir);

// Removes what no worker uses. A worker that is about to open one of these makes it again.
void SweepSharedWeights(const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_NODE_SHARED_WEIGHTS_H_
