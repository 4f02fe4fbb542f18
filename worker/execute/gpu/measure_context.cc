#include "worker/execute/gpu/measure_context.h"

#include <array>
#include <cstdlib>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/device.h"
#include "worker/execute/gpu/child_memory.h"
#include "worker/execute/gpu/cuda_runtime.h"
#include "worker/execute/gpu/ordinal.h"
#include "worker/execute/host_buffer.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {
namespace {

// Attention of one document, forward and backward.
class Attention {
 public:
  static absl::Status RunOn(Device& device) {
    ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Allocate(device, kBytes));
    Attention attention(device, memory.data());
    const OpFunctions& functions = device.ops()[static_cast<size_t>(program::OpCode::kAttention)];
    RETURN_IF_ERROR(CatchTorch([&] {
      functions.forward(attention.run_);
      functions.backward(attention.run_);
    }));
    return device.Synchronize();
  }

 private:
  static constexpr int64_t kTokens = 128, kWidth = 64;
  static constexpr int64_t kBytes = 16 * kTokens * kWidth;  // More than all of it.

  Attention(Device& device, char* memory) {
    op_.code = program::OpCode::kAttention;
    op_.attributes.heads = op_.attributes.kv_heads = 1;
    op_.attributes.head_width = kWidth;
    op_.attributes.scale = 1.0;
    device.Zero(memory, kBytes, 0);
    const auto take = [&](int64_t width, program::DType dtype) {
      const View view{memory, kTokens, width, dtype};
      memory += view.bytes();
      return view;
    };
    run_.op = &op_;
    run_.device = &device;
    run_.batch = &batch_;
    for (View* view : {&run_.in[0], &run_.in[1], &run_.in[2], &run_.out[0], &run_.d_out[0]})
      *view = take(kWidth, program::DType::kBF16);
    run_.out[1] = take(1, program::DType::kF32);
    run_.d_in = run_.in;  // May lie over them.
    const auto device_offsets = take(2, program::DType::kF32);
    device.Copy(device_offsets.data, offsets_.data(), sizeof(offsets_), 0);
    batch_.device_offsets = device_offsets.as<int64_t>();
    batch_.offsets = offsets_.data();
    batch_.tokens = kTokens;
    batch_.documents = 1;
  }

  const std::array<int64_t, 2> offsets_ = {0, kTokens};
  program::Op op_;
  Batch batch_;
  OpRun run_;
};

// The stream of copies, as tapes use it.
absl::Status CopyOn(Device& device) {
  constexpr int64_t kBytes = 4096;
  ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Allocate(device, kBytes));
  ASSIGN_OR_RETURN(const HostBuffer host, HostBuffer::Allocate(device, kBytes));
  RETURN_IF_ERROR(CatchTorch([&] {
    device.Record(0, program::kComputeStream);
    device.Wait(0, program::kCopyStream);
    device.CopyAsync(host.data(), memory.data(), kBytes, program::kCopyStream);
  }));
  return device.Synchronize();
}

}  // namespace

absl::StatusOr<int64_t> GpuContextBytes(const std::string& name) {
  absl::string_view number = name;
  int index = 0;
  if (!absl::ConsumePrefix(&number, "gpu:") || !absl::SimpleAtoi(number, &index) || index < 0)
    return absl::InvalidArgumentError(absl::StrCat("device \"", name, "\" is no gpu:N"));
  const int ordinal = CudaOrdinal(index, std::getenv("CUDA_VISIBLE_DEVICES"));
  std::unique_ptr<GpuRuntime> observer;
  std::unique_ptr<Device> device;  // The child's: there until its end.
  return BytesTakenByChild({.free_bytes = [&]() -> absl::StatusOr<int64_t> {
                              if (observer == nullptr) {
                                ASSIGN_OR_RETURN(observer, OpenCudaRuntime(ordinal));
                              }
                              return observer->memory().free_bytes;
                            },
                            .take = [&]() -> absl::Status {
                              ASSIGN_OR_RETURN(device, OpenDevice(name, /*threads=*/1));
                              RETURN_IF_ERROR(Attention::RunOn(*device));
                              return CopyOn(*device);
                            }});
}

}  // namespace snug::execute
