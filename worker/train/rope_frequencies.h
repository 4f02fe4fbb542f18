// The rotary frequencies of a model, bit for bit those of transformers: torch's own power, then its
// fp32 operations in its order.
#ifndef WORKER_TRAIN_ROPE_FREQUENCIES_H_
#define WORKER_TRAIN_ROPE_FREQUENCIES_H_

#include <cstdint>
#include <vector>

#include "worker/program/model_config.h"

namespace snug::train {

// (width / 2), of a head's `width` elements that are turned. Throws only what LibTorch throws.
std::vector<float> RopeFrequencies(int64_t width, double theta,
                                   const program::RopeScaling& scaling);

}  // namespace snug::train

#endif  // WORKER_TRAIN_ROPE_FREQUENCIES_H_
