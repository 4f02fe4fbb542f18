// What a call of CUDA or cuBLAS returned, as an exception with the call's name, the error's and
// their text.
#ifndef WORKER_EXECUTE_GPU_CUDA_CALL_H_
#define WORKER_EXECUTE_GPU_CUDA_CALL_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "worker/execute/allocator.h"

namespace snug::execute {

inline void CheckCuda(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // Forgets it, where it is not one that stays.
  const std::string text =
      std::string(call) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw CapExceeded(text);
  throw std::runtime_error(text);
}

inline void CheckCublas(const char* call, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text =
      std::string(call) + ": " + cublasGetStatusName(status) + ", " + cublasGetStatusString(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw CapExceeded(text);
  throw std::runtime_error(text);
}

// SNUG_CUDA(cudaMemGetInfo, &free, &total)
#define SNUG_CUDA(function, ...) CheckCuda(#function, function(__VA_ARGS__))
#define SNUG_CUBLAS(function, ...) CheckCublas(#function, function(__VA_ARGS__))

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_CUDA_CALL_H_
