#include "tests/worker/execute/gpu/emulated_runtime.h"

#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "kernels/types.h"
#include "tests/cuda_on_cpu/memory_watch.h"
#include "tests/worker/execute/gpu/cublas_rules.h"

namespace snug::execute {
namespace {

constexpr int64_t kPageBytes = 2 << 20;  // What a driver gives memory in.

constexpr std::align_val_t kPinnedAlignment{4096};  // It is pinned in pages.

int64_t WholePages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Lets the host at the GPU's memory for as long as the object lives.
class Opened {
 public:
  Opened(char* memory, int64_t bytes) : memory_(memory), bytes_(static_cast<size_t>(bytes)) {
    Protect(PROT_READ | PROT_WRITE);
  }
  ~Opened() { Protect(PROT_NONE); }

 private:
  void Protect(int protection) {
    if (mprotect(memory_, bytes_, protection) != 0) std::abort();
  }
  char* const memory_;
  const size_t bytes_;
};

// 10 bits behind the point, to the nearest.
float RoundedToTf32(float value) {
  constexpr uint32_t kHalf = 1u << 12, kDropped = 2 * kHalf - 1;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + kHalf) & ~kDropped);
}

double Load(const void* matrix, int64_t at, program::DType dtype) {
  if (dtype == program::DType::kF32) return static_cast<const float*>(matrix)[at];
  return kernels::ToFloat(static_cast<const kernels::bf16*>(matrix)[at]);
}

// Of an operand, as a product takes it.
double LoadOperand(const void* matrix, int64_t at, program::DType dtype) {
  if (dtype != program::DType::kF32 || !Tf32InUse()) return Load(matrix, at, dtype);
  return RoundedToTf32(static_cast<const float*>(matrix)[at]);
}

void Store(void* matrix, int64_t at, program::DType dtype, double value) {
  const auto rounded = static_cast<float>(value);
  if (dtype == program::DType::kF32) {
    static_cast<float*>(matrix)[at] = rounded;
  } else {
    static_cast<kernels::bf16*>(matrix)[at] = kernels::ToBf16(rounded);
  }
}

bool HasUnwritten(const void* matrix, int64_t rows, int64_t width, int64_t stride,
                  program::DType dtype) {
  const int64_t size = program::SizeOf(dtype);
  for (int64_t i = 0; i < rows; ++i) {
    const void* row = static_cast<const char*>(matrix) + i * stride * size;
    if (cuda_on_cpu::HoldsUnwritten(row, static_cast<size_t>(width * size))) return true;
  }
  return false;
}

void MultiplyInFloat64(const GemmCall& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = 0.0;
      for (int64_t l = 0; l < g.k; ++l) {
        const int64_t a = g.a_transposed ? l * g.a_stride + i : i * g.a_stride + l;
        const int64_t b = g.b_transposed ? j * g.b_stride + l : l * g.b_stride + j;
        sum += LoadOperand(g.a, a, g.dtype) * LoadOperand(g.b, b, g.dtype);
      }
      const int64_t c = i * g.c_stride + j;
      const double before = g.add ? Load(g.c, c, g.c_dtype) : 0.0;
      Store(g.c, c, g.c_dtype, before + g.alpha * sum);
    }
  }
}

}  // namespace

EmulatedRuntime::EmulatedRuntime(int64_t memory_bytes) : memory_bytes_(memory_bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(memory_bytes), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no address space for a GPU's memory");
  memory_ = static_cast<char*>(memory);
  cuda_on_cpu::SetLaunchQueue(&EmulatedRuntime::TakeLaunch, this);
}

EmulatedRuntime::~EmulatedRuntime() {
  cuda_on_cpu::SetLaunchQueue(nullptr, nullptr);
  for (const auto& [address, bytes] : allocations_) cuda_on_cpu::RemoveAllocation(address);
  munmap(memory_, static_cast<size_t>(memory_bytes_));
}

GpuRuntime::MemoryInfo EmulatedRuntime::memory() {
  int64_t used = leaked_bytes_;
  for (const auto& [address, bytes] : allocations_) used += WholePages(bytes);
  return {memory_bytes_ - used, memory_bytes_};
}

// First fit.
void* EmulatedRuntime::Allocate(int64_t bytes) {
  ThrowIfFailed();
  char* place = memory_;
  for (const auto& [address, taken] : allocations_) {
    if (address - place >= bytes) break;
    place = address + WholePages(taken);
  }
  if (place + bytes > memory_ + memory_bytes_) return nullptr;
  allocations_[place] = bytes;
  cuda_on_cpu::AddAllocation(place, static_cast<size_t>(bytes));
  const Opened opened(memory_, memory_bytes_);
  cuda_on_cpu::MarkUnwritten(place, static_cast<size_t>(bytes));
  return place;
}

void EmulatedRuntime::Free(void* address) noexcept {
  if (address == nullptr) return;
  RunEverything();
  if (allocations_.erase(static_cast<char*>(address)) == 0) std::abort();
  cuda_on_cpu::RemoveAllocation(address);
}

void* EmulatedRuntime::AllocateHost(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* memory = ::operator new(size, kPinnedAlignment);
  cuda_on_cpu::AddAllocation(memory, size);
  cuda_on_cpu::MarkUnwritten(memory, size);
  return memory;
}

void EmulatedRuntime::FreeHost(void* address) noexcept {
  RunEverything();
  cuda_on_cpu::RemoveAllocation(address);
  ::operator delete(address, kPinnedAlignment);
}

bool EmulatedRuntime::IsDeviceMemory(const void* address) {
  return address >= memory_ && address < memory_ + memory_bytes_;
}

kernels::Stream EmulatedRuntime::MakeStream() {
  streams_.push_back(std::make_unique<Queue>());
  return reinterpret_cast<kernels::Stream>(streams_.back().get());
}

GpuEvent EmulatedRuntime::MakeEvent() {
  events_.push_back(std::make_unique<Event>());
  return reinterpret_cast<GpuEvent>(events_.back().get());
}

void EmulatedRuntime::Copy(void* to, const void* from, int64_t bytes, kernels::Stream stream) {
  if (!IsDeviceMemory(to) || !IsDeviceMemory(from)) ++host_copies_;
  Issue(stream, {[=] { std::memcpy(to, from, static_cast<size_t>(bytes)); }});
}

void EmulatedRuntime::Fill(void* to, int byte, int64_t bytes, kernels::Stream stream) {
  ++fills_;
  Issue(stream, {[=] { std::memset(to, byte, static_cast<size_t>(bytes)); }});
}

void EmulatedRuntime::Record(GpuEvent handle, kernels::Stream stream) {
  auto* event = reinterpret_cast<Event*>(handle);
  const int64_t count = ++event->recorded;
  event->stream = NumberOf(stream);
  Issue(stream, {[event, count] { event->reached = count; }});
}

// For what was recorded last before this call.
void EmulatedRuntime::Wait(GpuEvent handle, kernels::Stream stream) {
  auto* event = reinterpret_cast<Event*>(handle);
  Issue(stream, {.run = [] {},
                 .wait_for = event,
                 .wait_count = event->recorded,
                 .recorded_by = event->stream});
}

void EmulatedRuntime::Multiply(const GemmCall& call, kernels::Stream stream) {
  const std::string refusal = CublasRefusal(call);
  if (!refusal.empty()) throw std::runtime_error(refusal);
  ++products_;
  Issue(stream, {[this, call] { RunProduct(call); }});
}

void EmulatedRuntime::RunProduct(const GemmCall& call) {
  const int64_t a_rows = call.a_transposed ? call.k : call.m;
  const int64_t b_rows = call.b_transposed ? call.n : call.k;
  const bool unwritten =
      HasUnwritten(call.a, a_rows, call.a_transposed ? call.m : call.k, call.a_stride,
                   call.dtype) ||
      HasUnwritten(call.b, b_rows, call.b_transposed ? call.k : call.n, call.b_stride,
                   call.dtype) ||
      (call.add && HasUnwritten(call.c, call.m, call.n, call.c_stride, call.c_dtype));
  if (unwritten) {
    failure_ = "an emulated product reads memory that nobody has written";
    return;
  }
  MultiplyInFloat64(call);
}

void EmulatedRuntime::AwaitEvent(GpuEvent handle) {
  const auto* event = reinterpret_cast<const Event*>(handle);
  const Opened opened(memory_, memory_bytes_);
  while (failure_.empty() && event->reached < event->recorded) RunFront(event->stream);
  ThrowIfFailed();
}

void EmulatedRuntime::SynchronizeStream(kernels::Stream stream) {
  RunAll(NumberOf(stream));
  ThrowIfFailed();
}

void EmulatedRuntime::Synchronize() {
  RunEverything();
  ThrowIfFailed();
}

void EmulatedRuntime::TakeLaunch(void* self, const cuda_on_cpu::GridLaunch& launch) {
  auto& runtime = *static_cast<EmulatedRuntime*>(self);
  runtime.kernels_.insert(launch.kernel);
  constexpr size_t kCacheLine = 64;
  const size_t bytes = (launch.call_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  const std::shared_ptr<void> call(std::aligned_alloc(kCacheLine, bytes), &std::free);
  std::memcpy(call.get(), launch.call, launch.call_bytes);
  cuda_on_cpu::GridLaunch later = launch;
  later.call = call.get();
  const auto stream = reinterpret_cast<kernels::Stream>(const_cast<void*>(launch.stream));
  runtime.Issue(stream, {[&runtime, later, call] { runtime.RunKernel(later); }});
}

void EmulatedRuntime::RunKernel(const cuda_on_cpu::GridLaunch& launch) {
  ++launches_;
  if (!cuda_on_cpu::RunGrid(launch.grid, launch.block, launch.thread, launch.call,
                            launch.call_bytes)) {
    failure_ = "an emulated kernel: " + cuda_on_cpu::TakeLastReport();
  }
}

size_t EmulatedRuntime::NumberOf(const void* stream) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].get() == stream) return i;
  }
  throw std::runtime_error("not a stream of this GPU");
}

void EmulatedRuntime::Issue(kernels::Stream stream, Task task) {
  ThrowIfFailed();
  if (++issued_ == fails_at_) task.run = [this] { failure_ = "cudaErrorECCUncorrectable"; };
  streams_[NumberOf(stream)]->push_back(std::move(task));
}

// What it waits for was issued before it, so this ends.
void EmulatedRuntime::RunFront(size_t stream) {
  Queue& queue = *streams_[stream];
  const Task task = std::move(queue.front());
  queue.pop_front();
  if (task.wait_for != nullptr) {
    while (failure_.empty() && task.wait_for->reached < task.wait_count) {
      RunFront(task.recorded_by);
    }
  }
  if (failure_.empty()) task.run();
}

void EmulatedRuntime::RunAll(size_t stream) {
  const Opened opened(memory_, memory_bytes_);
  while (failure_.empty() && !streams_[stream]->empty()) RunFront(stream);
}

void EmulatedRuntime::RunEverything() {
  for (size_t i = 0; i < streams_.size(); ++i) {
    RunAll(order_ == Order::kFirstMadeFirst ? i : streams_.size() - 1 - i);
  }
}

void EmulatedRuntime::ThrowIfFailed() const {
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

}  // namespace snug::execute
