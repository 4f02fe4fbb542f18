// Matrix products by cuBLAS. Rows become its columns by swapping the operands: c' = b' a'.
//
// Sums are fp32 whatever the operands are (CUBLAS_COMPUTE_32F), never in parts of a shorter type;
// operands are TF32 where the job says so alone (execute/gemm.h). The same call gives the same bits
// from run to run on one kind of GPU: each stream has a handle and a workspace of its own, and
// atomics are not allowed (cuBLAS, "Results Reproducibility").
#ifndef WORKER_EXECUTE_GPU_CUDA_PRODUCTS_H_
#define WORKER_EXECUTE_GPU_CUDA_PRODUCTS_H_

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

#include "worker/execute/gemm.h"

namespace snug::execute {

// Of each stream that multiplies, taken at its first product and kept: part of the context. What
// cuBLAS recommends for Hopper; with less it may choose slower ways, other GPUs ask for less.
inline constexpr int64_t kProductWorkspaceBytes = 32 << 20;

class CudaProducts {
 public:
  CudaProducts() = default;
  CudaProducts(const CudaProducts&) = delete;
  CudaProducts& operator=(const CudaProducts&) = delete;
  ~CudaProducts();

  // Throws std::runtime_error where CUDA or cuBLAS refuses.
  void Multiply(const GemmCall& call, cudaStream_t stream);

 private:
  struct Handle {
    cublasHandle_t handle = nullptr;
    void* workspace = nullptr;
  };
  cublasHandle_t HandleOf(cudaStream_t stream);

  std::map<cudaStream_t, Handle> handles_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_CUDA_PRODUCTS_H_
