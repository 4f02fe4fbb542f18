// What cublasGemmEx refuses, of the calls that CudaProducts makes with CUBLAS_COMPUTE_32F: its
// table of supported types, and its rules for dimensions. A pointer that is not aligned to its
// element, which it does not look at, would end its kernel with "misaligned address".
#ifndef TESTS_WORKER_EXECUTE_GPU_CUBLAS_RULES_H_
#define TESTS_WORKER_EXECUTE_GPU_CUBLAS_RULES_H_

#include <string>

#include "worker/execute/gemm.h"

namespace snug::execute {

// "cublasGemmEx_64: CUBLAS_STATUS_NOT_SUPPORTED: fp32 operands into bf16", or empty.
std::string CublasRefusal(const GemmCall& call);

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_GPU_CUBLAS_RULES_H_
