// The ways to compute a product; gemm.cc takes one per call. Each gives false, and has written
// nothing, where it cannot serve the call on this CPU.
#ifndef WORKER_EXECUTE_GEMM_PATHS_H_
#define WORKER_EXECUTE_GEMM_PATHS_H_

#include "worker/execute/gemm.h"

namespace snug::execute {

using PathFunction = bool (*)(const GemmCall& call);

// The system's oneDNN.
bool OneDnnGemm(const GemmCall& call);
// ATen's products, MKL's: fp32 only.
bool AtenGemm(const GemmCall& call);
// bf16 in blocks converted to fp32.
bool ConvertedGemm(const GemmCall& call);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GEMM_PATHS_H_
