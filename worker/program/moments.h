// How AdamW keeps the moments of trained parameters, and what they take. What the optimizer
// allocates and the daemon predicts are the same functions.
#ifndef WORKER_PROGRAM_MOMENTS_H_
#define WORKER_PROGRAM_MOMENTS_H_

#include <cstdint>

#include "worker/program/program.h"

namespace snug::program {

// Fewer are not worth a scale, and are mostly norms and biases: bitsandbytes' min_8bit_size.
inline constexpr int64_t kLeastCodedElements = 4096;

// Elements that share a scale: kernels::kCodeBlock.
inline constexpr int64_t kMomentBlock = 256;

// Whether the moments of a trained parameter lie in 8 bits (kernels/adamw.h). Never those of small
// tensors, nor of the embedding (with a tied head), as in transformers' Trainer over bitsandbytes:
// a row whose token is rare has gradients so far below its block's largest that its second moment
// would round to 0.
bool HasMomentCodes(const Program& program, const Parameter& parameter);

// Of both moments of a trained parameter: elements, and scales of codes. Each buffer is rounded up
// to kAlignment.
int64_t MomentBytes(const Program& program, const Parameter& parameter);

// What the optimizer keeps of a parameter from one step to the next: both moments, and its master
// where it has one. None of one that is not trained.
int64_t OptimizerBytes(const Program& program, const Parameter& parameter);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_MOMENTS_H_
