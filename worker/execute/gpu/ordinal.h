// Which of CUDA's devices gpu:N is.
#ifndef WORKER_EXECUTE_GPU_ORDINAL_H_
#define WORKER_EXECUTE_GPU_ORDINAL_H_

namespace snug::execute {

// A node gives a worker one GPU: CUDA_VISIBLE_DEVICES then names a single device, by number or
// UUID, which CUDA numbers 0 whatever the node calls it. Otherwise (null, or several) the process
// sees what CUDA sees, and gpu:N is its N-th.
int CudaOrdinal(int index, const char* visible_devices);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_ORDINAL_H_
