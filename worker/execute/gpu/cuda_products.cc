#include "worker/execute/gpu/cuda_products.h"

#include "worker/execute/gpu/cuda_call.h"

namespace snug::execute {
namespace {

cudaDataType_t TypeOf(program::DType dtype) {
  return dtype == program::DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

cublasOperation_t OperationOf(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

}  // namespace

CudaProducts::~CudaProducts() {
  for (const auto& [stream, entry] : handles_) {
    cublasDestroy(entry.handle);
    cudaFree(entry.workspace);
  }
}

cublasHandle_t CudaProducts::HandleOf(cudaStream_t stream) {
  Handle& entry = handles_[stream];
  if (entry.workspace != nullptr) return entry.handle;
  if (entry.handle == nullptr) SNUG_CUBLAS(cublasCreate, &entry.handle);
  SNUG_CUBLAS(cublasSetPointerMode, entry.handle, CUBLAS_POINTER_MODE_HOST);
  SNUG_CUBLAS(cublasSetAtomicsMode, entry.handle, CUBLAS_ATOMICS_NOT_ALLOWED);
  // The second: parts of a bf16 result are added up in fp32.
  SNUG_CUBLAS(cublasSetMathMode, entry.handle,
              static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                        CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  SNUG_CUBLAS(cublasSetStream, entry.handle, stream);  // Forgets a workspace: so before it.
  SNUG_CUDA(cudaMalloc, &entry.workspace, kProductWorkspaceBytes);
  SNUG_CUBLAS(cublasSetWorkspace, entry.handle, entry.workspace, kProductWorkspaceBytes);
  return entry.handle;
}

void CudaProducts::Multiply(const GemmCall& call, cudaStream_t stream) {
  const float beta = call.add ? 1.0f : 0.0f;
  const bool tf32 = call.dtype == program::DType::kF32 && Tf32InUse();
  const auto compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  SNUG_CUBLAS(cublasGemmEx_64, HandleOf(stream), OperationOf(call.b_transposed),
              OperationOf(call.a_transposed), call.n, call.m, call.k, &call.alpha, call.b,
              TypeOf(call.dtype), call.b_stride, call.a, TypeOf(call.dtype), call.a_stride, &beta,
              call.c, TypeOf(call.c_dtype), call.c_stride, compute, CUBLAS_GEMM_DEFAULT);
}

}  // namespace snug::execute
