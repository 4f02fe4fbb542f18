// A build without CUDA.
#include "tests/bench/kernels/device.h"

namespace snug::bench {

std::unique_ptr<Device> OpenCuda() { return nullptr; }

}  // namespace snug::bench
