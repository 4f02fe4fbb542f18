#include "worker/execute/cpu_device.h"

#include <ATen/Parallel.h>
#include <malloc.h>

#include <cstring>
#include <utility>

#include "worker/execute/cpu_allocator.h"

namespace snug::execute {

CpuDevice::CpuDevice(int threads, CpuStreams::Task before_each)
    : threads_(threads), allocator_(CpuAllocator()), streams_(std::move(before_each)) {
  at::set_num_threads(threads);
}

program::Machine CpuDevice::machine() const { return {.threads = at::get_num_threads()}; }

void CpuDevice::Copy(void* to, const void* from, int64_t bytes, int /*stream*/) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuDevice::CopyAsync(void* to, const void* from, int64_t bytes, int stream) {
  streams_.Issue(stream, [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
}

// OpenMP has a number of threads for each thread that calls it.
void CpuDevice::Issue(int stream, const std::function<void()>& run) {
  streams_.Issue(stream, [threads = threads_, run] {
    thread_local int set = 0;
    if (set != threads) at::set_num_threads(set = threads);
    run();
  });
}

absl::Status CpuDevice::Synchronize() {
  streams_.Synchronize();
  return absl::OkStatus();
}

void CpuDevice::Fill(void* to, int byte, int64_t bytes, int /*stream*/) {
  std::memset(to, byte, static_cast<size_t>(bytes));
}

// The C library keeps what is freed, and that of an arena may be gigabytes.
void CpuDevice::ReturnFreeMemory() { malloc_trim(/*pad=*/0); }

}  // namespace snug::execute
