// A GPU, timed by events on the stream of what is timed. LibTorch's CUDA library is loaded only
// when a GPU is asked for: it takes half a second, and most machines have none.
#include <ATen/ATen.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tests/bench/kernels/device.h"

namespace snug::bench {
namespace {

void Must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::abort();
}

class Cuda : public Device {
 public:
  Cuda() {
    Must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    Must(cudaEventCreate(&begin_));
    Must(cudaEventCreate(&end_));
  }
  std::string name() const override { return "cuda"; }
  kernels::Stream stream() const override { return reinterpret_cast<kernels::Stream>(stream_); }
  void Copy(void* to, const void* from, int64_t bytes) override {
    Must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  std::vector<double> Seconds(const std::vector<Timed>& calls, double at_least_s) override {
    Must(cudaDeviceSynchronize());
    for (const Timed& timed : calls) timed.call();
    std::vector<double> fastest(calls.size(), std::numeric_limits<double>::infinity());
    double total = 0.0;
    const double wanted = at_least_s * static_cast<double>(calls.size());
    for (int round = 0; round < 5 || total < wanted; ++round) {
      for (size_t i = 0; i < calls.size(); ++i) {
        const double taken = SecondsOf(calls[i]);
        fastest[i] = std::min(fastest[i], taken / kCalls);
        total += taken;
      }
    }
    return fastest;
  }

 private:
  static constexpr int kCalls = 10;  // Between two events: what starting costs the host is hidden.

  double SecondsOf(const Timed& timed) {
    const cudaStream_t stream = timed.torch ? nullptr : stream_;  // LibTorch's is the default one.
    Must(cudaDeviceSynchronize());
    Must(cudaEventRecord(begin_, stream));
    for (int i = 0; i < kCalls; ++i) timed.call();
    Must(cudaEventRecord(end_, stream));
    Must(cudaEventSynchronize(end_));
    float ms = 0.0f;
    Must(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) * 1e-3;
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// libtorch_cuda.so beside the libtorch_cpu.so of this process.
bool LoadTorchCuda() {
  Dl_info cpu;
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &cpu) == 0) return false;
  std::string path = cpu.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libtorch_cuda.so";
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  std::fprintf(stderr, "%s\n", dlerror());
  return false;
}

}  // namespace

std::unique_ptr<Device> OpenCuda() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0 || !LoadTorchCuda()) return nullptr;
  return std::make_unique<Cuda>();
}

}  // namespace snug::bench
