// What timed_device.h asks of a GPU.
#include <cuda_runtime_api.h>

#include <vector>

#include "tests/bench/step/timed_device.h"
#include "worker/execute/gpu/cuda_call.h"
#include "worker/execute/gpu/gpu_device.h"

namespace snug::bench {
namespace {

using execute::CheckCuda;

// Events are made once and used again for every step.
class Events final : public StreamClock {
 public:
  ~Events() override {
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  }
  int64_t Mark(kernels::Stream stream) override {
    if (used_ == events_.size()) {
      events_.emplace_back();
      SNUG_CUDA(cudaEventCreate, &events_.back());
    }
    SNUG_CUDA(cudaEventRecord, events_[used_], reinterpret_cast<cudaStream_t>(stream));
    return static_cast<int64_t>(used_++);
  }
  double Seconds(int64_t begin, int64_t end) override {
    float ms = 0.0f;
    SNUG_CUDA(cudaEventElapsedTime, &ms, events_[static_cast<size_t>(begin)],
              events_[static_cast<size_t>(end)]);
    return 1e-3 * static_cast<double>(ms);
  }
  void Forget() override { used_ = 0; }

 private:
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

}  // namespace

std::unique_ptr<StreamClock> EventClock() { return std::make_unique<Events>(); }

int64_t TakenBytes(execute::Device& gpu) {
  const auto memory = dynamic_cast<execute::GpuDevice&>(gpu).runtime().memory();
  return memory.total_bytes - memory.free_bytes;
}

}  // namespace snug::bench
