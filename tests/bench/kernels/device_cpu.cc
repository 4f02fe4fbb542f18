// The CPU, with the threads of OpenMP's default team.
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
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
  std::vector<double> Seconds(const std::vector<Timed>& calls, double at_least_s) override {
    for (const Timed& timed : calls) timed.call();
    std::vector<double> fastest(calls.size(), std::numeric_limits<double>::infinity());
    double total = 0.0;
    const double wanted = at_least_s * static_cast<double>(calls.size());
    for (int round = 0; round < 3 || total < wanted; ++round) {
      for (size_t i = 0; i < calls.size(); ++i) {
        // None finds in the caches what another one left there of their operands.
        if (i > 1) calls[0].call();
        const auto begin = std::chrono::steady_clock::now();
        calls[i].call();
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        fastest[i] = std::min(fastest[i], taken.count());
        total += taken.count();
      }
    }
    return fastest;
  }
};

}  // namespace

std::unique_ptr<Device> OpenCpu() { return std::make_unique<Cpu>(); }

}  // namespace snug::bench
