#include "worker/execute/gpu/gpu_device.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/rows.h"
#include "worker/execute/ops/kernel_call.h"

namespace snug::execute {
namespace {

void* Take(void* runtime, int64_t bytes) {
  return static_cast<GpuRuntime*>(runtime)->Allocate(bytes);
}

void GiveBack(void* runtime, void* address) { static_cast<GpuRuntime*>(runtime)->Free(address); }

// A matrix from one of its elements on.
char* From(const void* matrix, int64_t element, program::DType dtype) {
  return const_cast<char*>(static_cast<const char*>(matrix)) + element * program::SizeOf(dtype);
}

// Rows [i, i + part.m) and columns [j, j + part.n) of a product, into dense rows of fp32.
GemmCall PartOf(const GemmCall& call, int64_t i, int64_t j, GemmCall part) {
  part.a = From(call.a, i * (call.a_transposed ? 1 : call.a_stride), call.dtype);
  part.b = From(call.b, j * (call.b_transposed ? call.b_stride : 1), call.dtype);
  part.c_stride = part.n;
  part.c_dtype = program::DType::kF32;
  return part;
}

}  // namespace

GpuDevice::GpuDevice(std::string name, int threads, std::unique_ptr<GpuRuntime> runtime,
                     const OpFunctionTable& ops)
    : name_(std::move(name)),
      threads_(threads),
      runtime_(std::move(runtime)),
      free_at_first_(runtime_->memory().free_bytes),
      ops_(ops),
      allocator_({.take = &Take, .give_back = &GiveBack, .self = runtime_.get()}) {}

GpuDevice::~GpuDevice() {
  if (pinned_.front().memory != nullptr) (void)GpuDevice::Synchronize();  // It may be read still.
  for (const PinnedPiece& piece : pinned_)
    if (piece.memory != nullptr) runtime_->FreeHost(piece.memory);
  for (const auto& [number, staging] : staging_) runtime_->Free(staging);
}

kernels::Stream GpuDevice::stream(int number) {
  const auto found = streams_.find(number);
  if (found != streams_.end()) return found->second;
  return streams_[number] = runtime_->MakeStream();
}

void GpuDevice::CopyAsync(void* to, const void* from, int64_t bytes, int number) {
  if (bytes > 0) runtime_->Copy(to, from, bytes, stream(number));
}

void GpuDevice::Copy(void* to, const void* from, int64_t bytes, int number) {
  if (bytes == 0) return;
  const bool to_device = runtime_->IsDeviceMemory(to), from_device = runtime_->IsDeviceMemory(from);
  if (to_device && !from_device && bytes > kLeastStagedBytes &&
      CopyFromHost(static_cast<char*>(to), static_cast<const char*>(from), bytes, number))
    return;
  CopyAsync(to, from, bytes, number);
  if (!to_device || !from_device) runtime_->SynchronizeStream(stream(number));
}

bool GpuDevice::CopyFromHost(char* to, const char* from, int64_t bytes, int number) {
  for (PinnedPiece& piece : pinned_) {
    if (piece.memory == nullptr) piece.memory = runtime_->AllocateHost(kPinnedPieceBytes);
    if (piece.memory == nullptr) return false;
    if (piece.sent == nullptr) piece.sent = runtime_->MakeEvent();
  }
  for (int64_t done = 0; done < bytes; done += kPinnedPieceBytes) {
    const PinnedPiece piece = pinned_.front();
    const int64_t part = std::min(kPinnedPieceBytes, bytes - done);
    runtime_->AwaitEvent(piece.sent);
    std::memcpy(piece.memory, from + done, static_cast<size_t>(part));
    CopyAsync(to + done, piece.memory, part, number);
    runtime_->Record(piece.sent, stream(number));
    std::swap(pinned_.front(), pinned_.back());
  }
  return true;
}

void GpuDevice::Fill(void* to, int byte, int64_t bytes, int number) {
  if (bytes > 0) runtime_->Fill(to, byte, bytes, stream(number));
}

void GpuDevice::Record(int event, int number) {
  Event& found = events_[event];
  if (found.event == nullptr) found.event = runtime_->MakeEvent();
  runtime_->Record(found.event, stream(number));
  found.recorded = true;
}

void GpuDevice::Wait(int event, int number) {
  const auto found = events_.find(event);
  if (found == events_.end() || !found->second.recorded)
    throw std::runtime_error(
        absl::StrCat("stream ", number, " waits for event ", event, ", which nothing recorded"));
  runtime_->Wait(found->second.event, stream(number));
}

void GpuDevice::Multiply(const GemmCall& call, int number) {
  if (call.m == 0 || call.n == 0 || call.k == 0) return;
  if (call.dtype == program::DType::kF32 && call.c_dtype == program::DType::kBF16)
    return MultiplyIntoBf16(call, number);
  runtime_->Multiply(call, stream(number));
}

void GpuDevice::MultiplyIntoBf16(const GemmCall& call, int number) {
  constexpr int64_t kElements = kStagedProductBytes / int64_t{sizeof(float)};
  float* const sums = StagingOf(number);
  const int64_t width = std::min(call.n, kElements), height = kElements / width;
  for (int64_t i = 0; i < call.m; i += height) {
    for (int64_t j = 0; j < call.n; j += width) {
      GemmCall part = call;
      part.c = sums;
      part.m = std::min(height, call.m - i);
      part.n = std::min(width, call.n - j);
      kernels::CastRowsParams in = {.x = From(call.c, i * call.c_stride + j, call.c_dtype),
                                    .y = sums,
                                    .N = part.m,
                                    .C = part.n,
                                    .x_stride = call.c_stride,
                                    .y_stride = part.n,
                                    .x_dtype = kernels::DType::kBF16};
      const kernels::CastRowsParams out = {.x = sums,
                                           .y = const_cast<void*>(in.x),
                                           .N = part.m,
                                           .C = part.n,
                                           .x_stride = part.n,
                                           .y_stride = call.c_stride,
                                           .y_dtype = kernels::DType::kBF16};
      if (call.add) Check("CastRows", kernels::CastRows(in, stream(number)));
      runtime_->Multiply(PartOf(call, i, j, part), stream(number));
      Check("CastRows", kernels::CastRows(out, stream(number)));
    }
  }
}

float* GpuDevice::StagingOf(int number) {
  float*& staging = staging_[number];
  if (staging == nullptr) staging = static_cast<float*>(runtime_->Allocate(kStagedProductBytes));
  if (staging == nullptr) throw CapExceeded("the device has no memory left to round a product in");
  return staging;
}

absl::Status GpuDevice::Synchronize() {
  for (auto& [number, event] : events_) event.recorded = false;
  try {
    runtime_->Synchronize();
    return absl::OkStatus();
  } catch (const CapExceeded& error) {
    return absl::ResourceExhaustedError(error.what());
  } catch (const std::exception& error) {
    // Another attempt, perhaps on another GPU, can do better.
    return absl::AbortedError(
        absl::StrCat(name_, " failed, and what it held of the attempt is lost: ", error.what()));
  }
}

}  // namespace snug::execute
