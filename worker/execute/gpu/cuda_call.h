// What a call of CUDA or cuBLAS returned, as an exception with the call's name and their text.
#ifndef WORKER_EXECUTE_GPU_CUDA_CALL_H_
#define WORKER_EXECUTE_GPU_CUDA_CALL_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace snug::execute {

[[noreturn]] inline void ThrowGpuError(const char* call, const std::string& text, int code) {
  throw std::runtime_error(std::string(call) + ": " + text + " (" + std::to_string(code) + ")");
}

inline void CheckCuda(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // Forgets it, where it is not one that stays.
  ThrowGpuError(call, cudaGetErrorString(error), error);
}

inline void CheckCublas(const char* call, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) ThrowGpuError(call, cublasGetStatusString(status), status);
}

// SNUG_CUDA(cudaMemGetInfo, &free, &total)
#define SNUG_CUDA(function, ...) CheckCuda(#function, function(__VA_ARGS__))
#define SNUG_CUBLAS(function, ...) CheckCublas(#function, function(__VA_ARGS__))

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_CUDA_CALL_H_
