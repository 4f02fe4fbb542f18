#include "worker/execute/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/execute/cpu_device.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {

int64_t Device::SeenBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Pages of its own: they are given back when it goes.
void* Device::AllocateHost(int64_t bytes) {
  void* address = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void Device::FreeHost(void* address, int64_t bytes) noexcept {
  munmap(address, static_cast<size_t>(bytes));
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name, int threads) {
  absl::string_view number = name;
  int index = 0;
  const bool cpu = absl::ConsumePrefix(&number, "cpu:");
  if (!cpu && !absl::ConsumePrefix(&number, "gpu:"))
    return absl::InvalidArgumentError(absl::StrCat("device \"", name, "\" is no cpu:N or gpu:N"));
  if (!absl::SimpleAtoi(number, &index) || index < 0)
    return absl::InvalidArgumentError(absl::StrCat("device \"", name, "\" has no number"));
  if (cpu) return std::make_unique<CpuDevice>(threads);
  if (OpenGpu == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat("device \"", name, "\": this worker is built without GPUs"));
  return OpenGpu(name, index, threads);
}

absl::StatusOr<DeviceBlock> DeviceBlock::Take(Device& device, int64_t bytes) {
  DeviceBlock block;
  const absl::Status taken = CatchTorch([&] {
    device.allocator().OpenBlock(bytes);
    block.opened_.reset(&device.allocator());
  });
  if (!taken.ok()) return taken;
  return block;
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(Device& device, int64_t bytes) {
  DeviceBuffer buffer;
  buffer.bytes_ = bytes;
  if (bytes == 0) return buffer;
  const absl::Status taken = CatchTorch([&] {
    TrackingAllocator& allocator = device.allocator();
    buffer.memory_ = {static_cast<char*>(allocator.Take(bytes).address),
                      ReturnToAllocator{&allocator}};
  });
  if (!taken.ok()) return taken;
  return buffer;
}

int64_t DeviceBuffer::counted_bytes() const { return CountedBytes(bytes_); }

}  // namespace snug::execute
