#include "worker/train/load_kernels.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/execute/gemm.h"
#include "worker/execute/host_buffer.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/torch_errors.h"
#include "worker/train/small_step.h"

namespace snug::train {
namespace {

using execute::DeviceBuffer;
using program::DType;

// Up to each of these ATen's flash attention has kernels of its own; ours has up to 64, 128, 256.
constexpr int64_t kHeadWidths[] = {32, 64, 96, 128, 192, 256};
constexpr int64_t kWindow = 4;  // Of 8 tokens.

// An adapter's rank, rows of a chunk, and what a model's widths and a batch's tokens are like.
constexpr int64_t kSides[] = {16, 256, 2048};

// Of operands and result; the last is what a device stages.
constexpr struct {
  DType of, into;
} kTypes[] = {{DType::kF32, DType::kF32},
              {DType::kBF16, DType::kBF16},
              {DType::kBF16, DType::kF32},
              {DType::kF32, DType::kBF16}};

absl::Status RunStep(execute::Device& device, const SmallShape& shape) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SmallStep> step, SmallStep::Prepare(device, shape));
  return step->Run();
}

// m x n by k of `call`, whose matrices are there: x W^T, dy W, dy^T x.
void RunEachKind(execute::Device& device, execute::GemmCall call) {
  call.c_stride = call.n;
  for (const auto& [a_transposed, b_transposed] :
       {std::pair{false, true}, {false, false}, {true, false}}) {
    call.a_transposed = a_transposed;
    call.b_transposed = b_transposed;
    call.a_stride = a_transposed ? call.m : call.k;
    call.b_stride = b_transposed ? call.k : call.n;
    device.Multiply(call, program::kComputeStream);
  }
}

// As tapes use its stream.
absl::Status RunCopy(execute::Device& device) {
  constexpr int64_t kBytes = 4096;
  ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Allocate(device, kBytes));
  ASSIGN_OR_RETURN(const execute::HostBuffer host, execute::HostBuffer::Allocate(device, kBytes));
  RETURN_IF_ERROR(execute::CatchTorch([&] {
    device.Record(0, program::kComputeStream);
    device.Wait(0, program::kCopyStream);
    device.CopyAsync(host.data(), memory.data(), kBytes, program::kCopyStream);
  }));
  return device.Synchronize();
}

}  // namespace

absl::Status RunSmallSteps(execute::Device& device) {
  for (const int64_t head_width : kHeadWidths) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      SmallShape shape = {.head_width = head_width, .window = kWindow, .trains_tokens = true};
      shape.mode.compute = compute;
      RETURN_IF_ERROR(RunStep(device, shape));
      shape.mode.lora = true;
      shape.mode.adapter.dropout = 0.1;
      RETURN_IF_ERROR(RunStep(device, shape));
    }
  }
  return absl::OkStatus();
}

absl::Status RunProducts(execute::Device& device, std::span<const int64_t> sides) {
  const int64_t side = *std::max_element(sides.begin(), sides.end());
  const int64_t bytes = side * side * program::SizeOf(DType::kF32);
  ASSIGN_OR_RETURN(const DeviceBuffer memory, DeviceBuffer::Allocate(device, 3 * bytes));
  RETURN_IF_ERROR(execute::FillMemory(device, memory.data(), 0, 3 * bytes));
  execute::GemmCall call{.a = memory.data(), .b = memory.data() + bytes};
  call.c = memory.data() + 2 * bytes;
  RETURN_IF_ERROR(execute::CatchTorch([&] {
    for (const auto& types : kTypes) {
      call.dtype = types.of;
      call.c_dtype = types.into;
      for (const int64_t m : sides)
        for (const int64_t n : sides)
          for (const int64_t k : sides) {
            call.m = m;
            call.n = n;
            call.k = k;
            RunEachKind(device, call);
          }
    }
  }));
  return device.Synchronize();
}

absl::Status LoadKernels(execute::Device& device) {
  RETURN_IF_ERROR(RunSmallSteps(device));
  for (const bool tf32 : {true, false}) {
    execute::UseTf32(tf32);
    RETURN_IF_ERROR(RunProducts(device, kSides));
  }
  return RunCopy(device);
}

}  // namespace snug::train
