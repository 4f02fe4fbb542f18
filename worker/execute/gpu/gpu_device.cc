#include "worker/execute/gpu/gpu_device.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace snug::execute {
namespace {

void* Take(void* runtime, int64_t bytes) {
  return static_cast<GpuRuntime*>(runtime)->Allocate(bytes);
}

void GiveBack(void* runtime, void* address) { static_cast<GpuRuntime*>(runtime)->Free(address); }

}  // namespace

GpuDevice::GpuDevice(std::string name, int threads, std::unique_ptr<GpuRuntime> runtime,
                     const OpFunctionTable& ops)
    : name_(std::move(name)),
      threads_(threads),
      runtime_(std::move(runtime)),
      ops_(ops),
      allocator_({.take = &Take, .give_back = &GiveBack, .self = runtime_.get()}) {}

kernels::Stream GpuDevice::stream(int number) {
  const auto found = streams_.find(number);
  if (found != streams_.end()) return found->second;
  return streams_[number] = runtime_->MakeStream();
}

void GpuDevice::Copy(void* to, const void* from, int64_t bytes, int number) {
  if (bytes == 0) return;
  runtime_->Copy(to, from, bytes, stream(number));
  if (!runtime_->IsDeviceMemory(to) || !runtime_->IsDeviceMemory(from))
    runtime_->SynchronizeStream(stream(number));
}

void GpuDevice::Fill(void* to, int byte, int64_t bytes, int number) {
  if (bytes > 0) runtime_->Fill(to, byte, bytes, stream(number));
}

void GpuDevice::Record(int event, int number) {
  auto found = events_.find(event);
  if (found == events_.end()) found = events_.emplace(event, runtime_->MakeEvent()).first;
  runtime_->Record(found->second, stream(number));
}

void GpuDevice::Wait(int event, int number) {
  const auto found = events_.find(event);
  if (found == events_.end())
    throw std::runtime_error(
        absl::StrCat("stream ", number, " waits for event ", event, ", which nothing recorded"));
  runtime_->Wait(found->second, stream(number));
}

void GpuDevice::Multiply(const GemmCall& call, int number) {
  if (call.m > 0 && call.n > 0 && call.k > 0) runtime_->Multiply(call, stream(number));
}

absl::Status GpuDevice::Synchronize() {
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
