// Random draws that belong to no op of a program. Ops count up from 0, these down from the end of
// kernels/philox.h's range, so that no two draws of a job share their words.
#ifndef WORKER_WEIGHTS_RANDOM_OPS_H_
#define WORKER_WEIGHTS_RANDOM_OPS_H_

#include <cstdint>

#include "kernels/philox.h"

namespace snug {

inline constexpr uint32_t kRowShuffleOp = kernels::kMaxRandomOps - 1;
inline constexpr uint32_t kAdapterInitOp = kernels::kMaxRandomOps - 2;
inline constexpr uint32_t kSampleOp = kernels::kMaxRandomOps - 3;
inline constexpr uint32_t kSequenceShuffleOp = kernels::kMaxRandomOps - 4;
inline constexpr uint32_t kImageOp = kernels::kMaxRandomOps - 5;
inline constexpr uint32_t kMaskOp = kernels::kMaxRandomOps - 6;

}  // namespace snug

#endif  // WORKER_WEIGHTS_RANDOM_OPS_H_
