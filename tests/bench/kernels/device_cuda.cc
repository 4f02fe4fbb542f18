// A GPU, timed by events on the stream of what is timed. LibTorch's CUDA library is loaded only
// when a GPU is asked for: it takes half a second, and most machines have none.
#include <ATen/ATen.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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
  double Seconds(const std::function<void()>& call, double at_least_s, bool torch) override {
    constexpr int kCalls = 10;  // Between two events: what starting costs the host is hidden.
    const cudaStream_t stream = torch ? nullptr : stream_;  // LibTorch's is the default one.
    Must(cudaDeviceSynchronize());
    call();
    std::vector<double> seconds;
    for (double total = 0.0; seconds.size() < 5 || total < at_least_s;
         total += seconds.back() * kCalls) {
      Must(cudaEventRecord(begin_, stream));
      for (int i = 0; i < kCalls; ++i) call();
      Must(cudaEventRecord(end_, stream));
      Must(cudaEventSynchronize(end_));
      float ms = 0.0f;
      Must(cudaEventElapsedTime(&ms, begin_, end_));
      seconds.push_back(static_cast<double>(ms) * 1e-3 / kCalls);
    }
    return *std::min_element(seconds.begin(), seconds.end());
  }

 private:
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
