// Where a benchmark of kernels runs, and how long what it runs there takes.
#ifndef TESTS_BENCH_KERNELS_DEVICE_H_
#define TESTS_BENCH_KERNELS_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/types.h"

namespace snug::bench {

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // As LibTorch names it: "cpu", "cuda".
  virtual kernels::Stream stream() const = 0;
  // Copies within the device, as fast as it can.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
  // Seconds of one call: the fastest of several, which nobody else on the machine held up, after
  // one that is not counted. `torch`: the call is LibTorch's and runs on its own stream.
  virtual double Seconds(const std::function<void()>& call, double at_least_s, bool torch) = 0;
};

std::unique_ptr<Device> OpenCpu();
// Null where this build or this machine has no CUDA.
std::unique_ptr<Device> OpenCuda();

}  // namespace snug::bench

#endif  // TESTS_BENCH_KERNELS_DEVICE_H_
