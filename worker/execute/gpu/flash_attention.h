// Attention by ATen's flash kernels, with the contract of ops/attention.cc.
#ifndef WORKER_EXECUTE_GPU_FLASH_ATTENTION_H_
#define WORKER_EXECUTE_GPU_FLASH_ATTENTION_H_

#include "worker/execute/op_run.h"

namespace snug::execute {

// Our kernels' functions, but attention by ATen's where they serve it (program::FlashServes).
const OpFunctionTable& OpFunctionsWithFlash();

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_FLASH_ATTENTION_H_
