// Gradients that do not outlive the block that completes them.
#ifndef WORKER_PROGRAM_RELEASED_GRADIENTS_H_
#define WORKER_PROGRAM_RELEASED_GRADIENTS_H_

#include "worker/program/program.h"

namespace snug::program {

// TrainingMode::release_gradients: of each trained parameter that one block alone reads.
void ReleaseGradients(Program& program);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_RELEASED_GRADIENTS_H_
