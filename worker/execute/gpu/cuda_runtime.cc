#include "worker/execute/gpu/cuda_runtime.h"

#include <exception>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/execute/gpu/cuda_call.h"
#include "worker/execute/gpu/cuda_products.h"

namespace snug::execute {
namespace {

// Kernels, and ATen's flash attention, are compiled for this one and newer ones.
constexpr int kOldestMajor = 8;

cudaStream_t Cuda(kernels::Stream stream) { return reinterpret_cast<cudaStream_t>(stream); }
cudaEvent_t Cuda(GpuEvent event) { return reinterpret_cast<cudaEvent_t>(event); }

// What CUDA answers to these changes nothing any more.
struct Destroy {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
using OwnedStream = std::unique_ptr<CUstream_st, Destroy>;
using OwnedEvent = std::unique_ptr<CUevent_st, Destroy>;

class CudaRuntime final : public GpuRuntime {
 public:
  explicit CudaRuntime(int ordinal) {
    SNUG_CUDA(cudaSetDevice, ordinal);
    SNUG_CUDA(cudaFree, nullptr);  // Makes the context here, not in some later call.
  }
  ~CudaRuntime() override { (void)cudaDeviceSynchronize(); }

  MemoryInfo memory() override {
    size_t free = 0, total = 0;
    SNUG_CUDA(cudaMemGetInfo, &free, &total);
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  void* Allocate(int64_t bytes) override {
    void* address = nullptr;
    const cudaError_t error = cudaMalloc(&address, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // Not an error of the next call.
      return nullptr;
    }
    CheckCuda("cudaMalloc", error);
    return address;
  }

  // CUDA does not promise that cudaFree waits.
  void Free(void* address) noexcept override {
    (void)cudaDeviceSynchronize();
    (void)cudaFree(address);
  }

  void* AllocateHost(int64_t bytes) override {
    void* address = nullptr;
    const cudaError_t error = cudaMallocHost(&address, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    CheckCuda("cudaMallocHost", error);
    return address;
  }
  void FreeHost(void* address) noexcept override { (void)cudaFreeHost(address); }

  bool IsDeviceMemory(const void* address) override {
    cudaPointerAttributes attributes = {};
    SNUG_CUDA(cudaPointerGetAttributes, &attributes, address);
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

  kernels::Stream MakeStream() override {
    cudaStream_t stream = nullptr;
    SNUG_CUDA(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
    streams_.emplace_back(stream);
    return reinterpret_cast<kernels::Stream>(stream);
  }

  GpuEvent MakeEvent() override {
    cudaEvent_t event = nullptr;
    SNUG_CUDA(cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
    events_.emplace_back(event);
    return reinterpret_cast<GpuEvent>(event);
  }

  // Addresses say which memory they are of.
  void Copy(void* to, const void* from, int64_t bytes, kernels::Stream stream) override {
    SNUG_CUDA(cudaMemcpyAsync, to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
              Cuda(stream));
  }
  void Fill(void* to, int byte, int64_t bytes, kernels::Stream stream) override {
    SNUG_CUDA(cudaMemsetAsync, to, byte, static_cast<size_t>(bytes), Cuda(stream));
  }
  void Record(GpuEvent event, kernels::Stream stream) override {
    SNUG_CUDA(cudaEventRecord, Cuda(event), Cuda(stream));
  }
  void Wait(GpuEvent event, kernels::Stream stream) override {
    SNUG_CUDA(cudaStreamWaitEvent, Cuda(stream), Cuda(event), 0);
  }
  void Multiply(const GemmCall& call, kernels::Stream stream) override {
    products_.Multiply(call, Cuda(stream));
  }

  void AwaitEvent(GpuEvent event) override { SNUG_CUDA(cudaEventSynchronize, Cuda(event)); }
  void SynchronizeStream(kernels::Stream stream) override {
    SNUG_CUDA(cudaStreamSynchronize, Cuda(stream));
  }
  void Synchronize() override {
    SNUG_CUDA(cudaDeviceSynchronize);
    SNUG_CUDA(cudaGetLastError);
  }

 private:
  std::vector<OwnedStream> streams_;
  std::vector<OwnedEvent> events_;
  CudaProducts products_;  // Gone before the streams.
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRuntime>> OpenCudaRuntime(int ordinal) {
  try {
    int count = 0, major = 0, minor = 0;
    SNUG_CUDA(cudaGetDeviceCount, &count);
    if (ordinal >= count)
      return absl::FailedPreconditionError(absl::StrCat("CUDA sees ", count, " GPUs"));
    SNUG_CUDA(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, ordinal);
    SNUG_CUDA(cudaDeviceGetAttribute, &minor, cudaDevAttrComputeCapabilityMinor, ordinal);
    if (major < kOldestMajor)
      return absl::FailedPreconditionError(absl::StrCat("its compute capability is ", major, ".",
                                                        minor, ", below ", kOldestMajor, ".0"));
    return std::make_unique<CudaRuntime>(ordinal);
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(error.what());
  }
}

}  // namespace snug::execute
