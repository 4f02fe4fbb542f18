// The CPU, with the threads of OpenMP's default team.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "tests/bench/kernels/device.h"

namespace snug::bench {
namespace {

class Cpu : public Device {
 public:
  std::string name() const override { return "cpu"; }
  kernels::Stream stream() const override { return nullptr; }
  void Copy(void* to, const void* from, int64_t bytes) override {
#pragma omp parallel
    {
      const int64_t team = omp_get_num_threads(), thread = omp_get_thread_num();
      const int64_t begin = bytes * thread / team, end = bytes * (thread + 1) / team;
      memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
    }
  }
  double Seconds(const std::function<void()>& call, double at_least_s, bool) override {
    call();
    std::vector<double> seconds;
    for (double total = 0.0; seconds.size() < 3 || total < at_least_s; total += seconds.back()) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return *std::min_element(seconds.begin(), seconds.end());
  }
};

}  // namespace

std::unique_ptr<Device> OpenCpu() { return std::make_unique<Cpu>(); }

}  // namespace snug::bench
