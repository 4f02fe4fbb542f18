// Which attention ATen's flash kernels serve on a GPU, and what they allocate there.
#ifndef WORKER_PROGRAM_FLASH_ATTENTION_H_
#define WORKER_PROGRAM_FLASH_ATTENTION_H_

#include <cstdint>

#include "worker/program/op_table.h"

namespace snug::program {

// As they are called here they are causal. They have no softcap, draw their own dropout, and take
// head widths of a multiple of 8 up to 256 in 16 bits. Where they do not serve, or keys lie in a
// cache, our own kernel does (kernels/attention.h).
bool FlashServes(const OpAttributes& op, DType compute);

// What a run takes from its slice where they serve, results included: ATen gives those tensors of
// their own, which the op copies.
int64_t FlashAttentionBytes(const RunShape& run);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FLASH_ATTENTION_H_
