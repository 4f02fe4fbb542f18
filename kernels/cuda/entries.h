// The CUDA side of each op: called with checked arguments and a stream that is not null.
#ifndef KERNELS_CUDA_ENTRIES_H_
#define KERNELS_CUDA_ENTRIES_H_

#include "kernels/rms_norm.h"

namespace snug::kernels::cuda {

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream);

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ENTRIES_H_
