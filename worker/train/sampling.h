// The next token of an answer, from logits. Pure; transformers' rules.
#ifndef WORKER_TRAIN_SAMPLING_H_
#define WORKER_TRAIN_SAMPLING_H_

#include <cstdint>
#include <span>

#include "worker/train/training_options.h"

namespace snug::train {

// Temperature 0: the likeliest (the first of equals). Else a draw from softmax(logits /
// temperature), of which the least likely tokens are left out that together have at most 1 - top_p.
// `uniform`: in [0, 1). `order`: room for as many numbers as there are logits. NaN logits: -1.
int32_t PickToken(std::span<float> logits, std::span<int32_t> order, const SampleOptions& options,
                  double uniform);

// A number in [0, 1): of the job's seed, the step, the prompt and how many tokens were drawn.
double SampleUniform(uint64_t seed, int64_t step, int64_t prompt, int64_t token);

}  // namespace snug::train

#endif  // WORKER_TRAIN_SAMPLING_H_
