// Where a benchmark of kernels runs, and how long what it runs there takes.
#ifndef TESTS_BENCH_KERNELS_DEVICE_H_
#define TESTS_BENCH_KERNELS_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace snug::bench {

struct Timed {
  std::function<void()> call;
  bool torch = false;  // LibTorch's, which runs on its own stream.
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // As LibTorch names it: "cpu", "cuda".
  virtual kernels::Stream stream() const = 0;
  // Copies within the device, as fast as it can.
  virtual void Copy(void* to, const void* from, int64_t bytes) = 0;
  // Seconds of each call: its fastest of several, which nobody else on the machine held up. The
  // calls take turns, so that what slows the machine down slows down all of them; the first round
  // is not counted. On the CPU the first call, whose operands are its own, runs before each other.
  virtual std::vector<double> Seconds(const std::vector<Timed>& calls, double at_least_s) = 0;
};

std::unique_ptr<Device> OpenCpu();
// Null where this build or this machine has no CUDA.
std::unique_ptr<Device> OpenCuda();

}  // namespace snug::bench

#endif  // TESTS_BENCH_KERNELS_DEVICE_H_
