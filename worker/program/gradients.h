// Which gradients a block's backward computes: an op has one when a gradient of an output arrives
// and something behind it is wanted.
#ifndef WORKER_PROGRAM_GRADIENTS_H_
#define WORKER_PROGRAM_GRADIENTS_H_

#include <vector>

#include "worker/program/block_script.h"

namespace snug::program {

struct BlockGradients {
  std::vector<bool> required;  // By value: its gradient is wanted.
  std::vector<bool> backward;  // By op: it has a backward.
  std::vector<Wanted> wanted;  // By op: what that backward gives.
};

BlockGradients GradientsOf(const BlockRequest& request);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_GRADIENTS_H_
