// A GPU on the host: kernels by tests/cuda_on_cpu, products by a loop in float64.
//
// Its memory is given in pages of 2 MiB, each to one allocation: no driver takes more for it. It is
// a mapping that the host may not touch outside of kernels, copies and products: an op that looks
// into it ends the process. Kernels may use pinned memory of the host as well, as CUDA's may. New
// memory holds NaN. What is issued on a stream waits there until something asks for it: then
// streams run one after another, in the order chosen, and one that waits for an event has the
// stream that records it run up to there. So work that needs another stream's and does not wait for
// it reads or writes too early in one of the two orders.
//
// A product that cuBLAS would refuse is refused (cublas_rules.h), and one that reads memory that
// nobody has written fails.
//
// A kernel that fails makes every later call fail with its report, as CUDA does. One object at a
// time in a process, since launches of kernels say no more than their stream.
#ifndef TESTS_WORKER_EXECUTE_GPU_EMULATED_RUNTIME_H_
#define TESTS_WORKER_EXECUTE_GPU_EMULATED_RUNTIME_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/emulator.h"
#include "worker/execute/gpu/runtime.h"

namespace snug::execute {

class EmulatedRuntime final : public GpuRuntime {
 public:
  enum class Order : uint8_t { kFirstMadeFirst, kLastMadeFirst };

  explicit EmulatedRuntime(int64_t memory_bytes);
  ~EmulatedRuntime() override;

  void set_order(Order order) { order_ = order; }
  // As if an error of hardware were met by what is issued n-th from now on, when it runs.
  void FailAt(int64_t n) { fails_at_ = issued_ + n; }
  // As if a library took so much more, and kept it.
  void Leak(int64_t bytes) { leaked_bytes_ += bytes; }
  int64_t launches() const { return launches_; }
  const std::set<const void*>& kernels() const { return kernels_; }  // That were launched.
  int64_t issued() const { return issued_; }
  int64_t products() const { return products_; }
  int64_t fills() const { return fills_; }
  int64_t host_copies() const { return host_copies_; }  // From the host's memory, or to it.

  MemoryInfo memory() override;
  void* Allocate(int64_t bytes) override;
  void Free(void* address) noexcept override;
  bool IsDeviceMemory(const void* address) override;
  void* AllocateHost(int64_t bytes) override;
  void FreeHost(void* address) noexcept override;
  kernels::Stream MakeStream() override;
  GpuEvent MakeEvent() override;
  void Copy(void* to, const void* from, int64_t bytes, kernels::Stream stream) override;
  void Fill(void* to, int byte, int64_t bytes, kernels::Stream stream) override;
  void Record(GpuEvent event, kernels::Stream stream) override;
  void Wait(GpuEvent event, kernels::Stream stream) override;
  void Multiply(const GemmCall& call, kernels::Stream stream) override;
  void AwaitEvent(GpuEvent event) override;
  void SynchronizeStream(kernels::Stream stream) override;
  void Synchronize() override;

 private:
  // How often it was recorded, and how much of that its streams have come to.
  struct Event {
    int64_t recorded = 0, reached = 0;
    size_t stream = 0;  // That recorded it last.
  };
  struct Task {
    std::function<void()> run;
    Event* wait_for = nullptr;  // Not before this one has reached
    int64_t wait_count = 0;     // this.
    size_t recorded_by = 0;     // On this stream.
  };
  using Queue = std::deque<Task>;

  static void TakeLaunch(void* self, const cuda_on_cpu::GridLaunch& launch);
  void RunKernel(const cuda_on_cpu::GridLaunch& launch);
  void RunProduct(const GemmCall& call);
  size_t NumberOf(const void* stream) const;
  void Issue(kernels::Stream stream, Task task);
  void RunFront(size_t stream);
  void RunAll(size_t stream);
  void RunEverything();
  void ThrowIfFailed() const;

  const int64_t memory_bytes_;
  char* memory_ = nullptr;
  std::map<char*, int64_t> allocations_;
  std::vector<std::unique_ptr<Queue>> streams_;  // A Stream is the address of one.
  std::vector<std::unique_ptr<Event>> events_;
  Order order_ = Order::kFirstMadeFirst;
  std::string failure_;
  std::set<const void*> kernels_;
  int64_t launches_ = 0, issued_ = 0, fails_at_ = 0, leaked_bytes_ = 0;
  int64_t products_ = 0, fills_ = 0, host_copies_ = 0;
};

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_GPU_EMULATED_RUNTIME_H_
