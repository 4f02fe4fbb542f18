// gpu:N of this process: CUDA, cuBLAS, and ATen on the same memory.
#include <ATen/Parallel.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/execute/gpu/cuda_runtime.h"
#include "worker/execute/gpu/flash_attention.h"
#include "worker/execute/gpu/gpu_device.h"
#include "worker/execute/gpu/ordinal.h"
#include "worker/execute/gpu/torch_allocator.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/tape.h"

namespace snug::execute {
namespace {

class CudaDevice final : public GpuDevice {
 public:
  CudaDevice(std::string name, int threads, std::unique_ptr<GpuRuntime> runtime)
      : GpuDevice(std::move(name), threads, std::move(runtime), OpFunctionsWithFlash()),
        torch_allocator_(allocator()) {}

  // A product of each type on each stream that multiplies, so that no step is the first to find
  // that cuBLAS has no room, and what a second stream takes is measured with the context.
  void WarmUp() {
    for (const int stream : {program::kComputeStream, program::kRecoverStream}) WarmUp(stream);
  }

 private:
  void WarmUp(int stream) {
    constexpr int64_t kSide = 16;
    const int64_t bytes = kSide * kSide * program::SizeOf(program::DType::kF32);
    void* memory = runtime().Allocate(2 * bytes);
    if (memory == nullptr) throw CapExceeded("the device has no memory left for a first product");
    Fill(memory, 0, bytes, stream);
    GemmCall call{.a = memory, .b = memory, .c = static_cast<char*>(memory) + bytes};
    call.m = call.n = call.k = call.a_stride = call.b_stride = call.c_stride = kSide;
    Multiply(call, stream);
    call.dtype = call.c_dtype = program::DType::kBF16;
    Multiply(call, stream);
    call.dtype = program::DType::kF32;  // Takes the stream's staging.
    Multiply(call, stream);
    runtime().Synchronize();
    runtime().Free(memory);
  }

  TorchAllocator torch_allocator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const std::string& name, int index, int threads) {
  auto runtime = OpenCudaRuntime(CudaOrdinal(index, std::getenv("CUDA_VISIBLE_DEVICES")));
  if (!runtime.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("device \"", name, "\": ", runtime.status().message()));
  at::set_num_threads(threads);  // What the host computes.
  std::unique_ptr<CudaDevice> device;
  const absl::Status opened = CatchTorch([&] {
    device = std::make_unique<CudaDevice>(name, threads, *std::move(runtime));
    device->WarmUp();
  });
  if (!opened.ok())
    return absl::Status(opened.code(), absl::StrCat("device \"", name, "\": ", opened.message()));
  return device;
}

}  // namespace snug::execute
