// The GPU that a test runs on. The same test is linked twice: with emulated_gpu.cc, and with
// real_gpu.cc (label gpu).
#ifndef TESTS_WORKER_EXECUTE_GPU_TEST_GPU_H_
#define TESTS_WORKER_EXECUTE_GPU_TEST_GPU_H_

#include <memory>

#include "worker/execute/device.h"
#include "worker/execute/gpu/gpu_device.h"

namespace snug::execute {

// Which stream gets ahead of the others where nothing makes it wait. A real GPU chooses by itself.
enum class Ahead : uint8_t { kFirstStream, kLastStream };

// gpu:0 with our own kernels' functions; one at a time.
std::unique_ptr<GpuDevice> OpenTestGpu(Ahead ahead = Ahead::kFirstStream);

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_GPU_TEST_GPU_H_
