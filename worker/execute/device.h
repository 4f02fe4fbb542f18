// A device as the worker uses it: memory, streams, products, functions of the ops. The CPU
// (cpu_device.h) and a GPU (gpu/) are classes of this shape.
//
// Invariant of a device whose memory the host does not read: nothing outside its kernels and its
// Copy and Zero looks at what its allocator gave out. What runs on one stream runs in order; the
// host waits for it in Synchronize alone.
#ifndef WORKER_EXECUTE_DEVICE_H_
#define WORKER_EXECUTE_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/types.h"
#include "worker/execute/allocator.h"
#include "worker/execute/gemm.h"
#include "worker/execute/op_run.h"
#include "worker/program/op_table.h"

namespace snug::execute {

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;
  // What tapes are lowered for.
  virtual program::Machine machine() const = 0;
  virtual TrackingAllocator& allocator() = 0;
  virtual const OpFunctionTable& ops() const = 0;

  // Whether the host may read and write what the allocator gives out.
  virtual bool host_reads_memory() const = 0;
  // Of an instruction's stream number, as kernels take it; null on the CPU.
  virtual kernels::Stream stream(int number) = 0;

  // Throw std::runtime_error where the device refuses. Copy: from and to memory of the device or
  // the host; when it returns, the host has what comes to it and may use again what it gave.
  virtual void Copy(void* to, const void* from, int64_t bytes, int stream) = 0;
  // In its stream's order, perhaps long after it returns: what it reads and writes stays until the
  // stream has been waited for. The host's memory is AllocateHost's.
  virtual void CopyAsync(void* to, const void* from, int64_t bytes, int stream) = 0;
  virtual void Fill(void* to, int byte, int64_t bytes, int stream) = 0;
  // Calls `run`, which calls an op's function on the stream and throws nothing: at once where the
  // function only issues work, else in the stream's order, perhaps after this returns.
  virtual void Issue(int /*stream*/, const std::function<void()>& run) { run(); }
  // What one stream has recorded others can wait for, until Synchronize: an event is one tape's.
  virtual void Record(int event, int stream) = 0;
  virtual void Wait(int event, int stream) = 0;
  virtual void Multiply(const GemmCall& call, int stream) = 0;
  // Whether Multiply takes a c of bf16, and rounds each sum once.
  virtual bool rounds_products() const = 0;
  // Until everything on all streams is done; what went wrong there, if anything did.
  virtual absl::Status Synchronize() = 0;

  // What was given back and is kept for later, if anything, goes back to the system.
  virtual void ReturnFreeMemory() {}
  // What is taken by the word of who gives it (program/planning/memory_look.h), 0: nobody says. Of
  // the host by this process; of a GPU by anybody since the device was opened. Throws as Copy does.
  virtual int64_t SeenBytes();

  // The host's memory for copies, on a GPU pinned; the allocator does not count it. Null: no more.
  virtual void* AllocateHost(int64_t bytes);
  virtual void FreeHost(void* address, int64_t bytes) noexcept;

  void Zero(void* to, int64_t bytes, int stream) { Fill(to, 0, bytes, stream); }
};

// "cpu:N" or "gpu:N". FailedPrecondition: gpu:N in a worker that is built without GPUs, or where
// there is none; InvalidArgument: another name.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name, int threads);

// Of gpu:INDEX; gpu/ defines it. Null in a worker without GPUs.
[[gnu::weak]] absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const std::string& name, int index,
                                                              int threads);

// How a DeviceBuffer's memory goes back.
struct ReturnToAllocator {
  TrackingAllocator* allocator = nullptr;
  void operator()(char* address) const {
    allocator->GiveBack({address, TrackingAllocator::Origin::kOutside});
  }
};

// What stays on a device, taken in one piece, for as long as the object lives: a DeviceBuffer
// allocated before it is sealed is a part of it, and gone before it. A driver gives memory in
// pages: of a page begun by every tensor it would give more than is counted.
class DeviceBlock {
 public:
  // ResourceExhausted beyond the cap.
  static absl::StatusOr<DeviceBlock> Take(Device& device, int64_t bytes);
  void Seal() { opened_->SealBlock(); }

 private:
  struct Close {
    void operator()(TrackingAllocator* allocator) const { allocator->CloseBlock(); }
  };
  std::unique_ptr<TrackingAllocator, Close> opened_;
};

// One piece of a device's memory, for as long as the object lives. Counted by its allocator.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // ResourceExhausted beyond the cap. No bytes: data() is null.
  static absl::StatusOr<DeviceBuffer> Allocate(Device& device, int64_t bytes);

  char* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  // As its allocator counts it.
  int64_t counted_bytes() const;

 private:
  std::unique_ptr<char, ReturnToAllocator> memory_;
  int64_t bytes_ = 0;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_DEVICE_H_
