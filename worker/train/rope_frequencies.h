// The rotary frequencies of a model, bit for bit those of transformers: torch's own power, then its
// fp32 operations in its order.
#ifndef WORKER_TRAIN_ROPE_FREQUENCIES_H_
#define WORKER_TRAIN_ROPE_FREQUENCIES_H_

#include <vector>

#include "worker/program/model_config.h"

namespace snug::train {

// (D/2). Throws only what LibTorch throws.
std::vector<float> RopeFrequencies(const program::ModelConfig& config);

}  // namespace snug::train

#endif  // WORKER_TRAIN_ROPE_FREQUENCIES_H_
