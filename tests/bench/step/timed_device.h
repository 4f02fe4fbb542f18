// A device that says how long each op of a step took: its functions are those of another device,
// between two looks at a clock. On a GPU the clock is that of its stream, by events, so that
// nothing waits for anything that it would not have waited for.
#ifndef TESTS_BENCH_STEP_TIMED_DEVICE_H_
#define TESTS_BENCH_STEP_TIMED_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/execute/device.h"

namespace snug::bench {

// Looks at a device's clock.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  // Remembers the moment at which the stream gets here; a number that Seconds knows.
  virtual int64_t Mark(kernels::Stream stream) = 0;
  // Between two moments, when the device has been waited for.
  virtual double Seconds(int64_t begin, int64_t end) = 0;
  virtual void Forget() = 0;  // All moments.
};

// The host's: where every call is done when it returns.
std::unique_ptr<StreamClock> HostClock();

// What only a GPU has; gpu_side.cc defines it. Null in snug-step.
[[gnu::weak]] std::unique_ptr<StreamClock> EventClock();
// The bytes that are taken of the whole GPU, by its driver's count.
[[gnu::weak]] int64_t TakenBytes(execute::Device& gpu);

// One at a time: ops have no place for a pointer to it.
class TimedDevice final : public execute::Device {
 public:
  explicit TimedDevice(std::unique_ptr<execute::Device> device);
  ~TimedDevice() override;

  // Seconds and calls by "Linear forward", since the last call of it. Waits for the device.
  struct Time {
    double seconds = 0.0;
    int64_t calls = 0;
  };
  absl::StatusOr<std::map<std::string, Time>> Take();
  execute::Device& inner() { return *device_; }

  const std::string& name() const override { return device_->name(); }
  program::Machine machine() const override { return device_->machine(); }
  execute::TrackingAllocator& allocator() override { return device_->allocator(); }
  const execute::OpFunctionTable& ops() const override { return ops_; }
  bool host_reads_memory() const override { return device_->host_reads_memory(); }
  kernels::Stream stream(int number) override { return device_->stream(number); }
  void Copy(void* to, const void* from, int64_t bytes, int stream) override {
    device_->Copy(to, from, bytes, stream);
  }
  void CopyAsync(void* to, const void* from, int64_t bytes, int stream) override {
    device_->CopyAsync(to, from, bytes, stream);
  }
  void Fill(void* to, int byte, int64_t bytes, int stream) override {
    device_->Fill(to, byte, bytes, stream);
  }
  void Record(int event, int stream) override { device_->Record(event, stream); }
  void Wait(int event, int stream) override { device_->Wait(event, stream); }
  void Multiply(const execute::GemmCall& call, int stream) override {
    device_->Multiply(call, stream);
  }
  bool rounds_products() const override { return device_->rounds_products(); }
  absl::Status Synchronize() override { return device_->Synchronize(); }

  // Of the wrapped functions.
  void Run(size_t code, bool forward, const execute::OpRun& run);

 private:
  struct Call {
    size_t code;
    bool forward;
    int64_t begin, end;
  };

  const std::unique_ptr<execute::Device> device_;
  const execute::OpFunctionTable ops_;
  const std::unique_ptr<StreamClock> clock_;
  std::vector<Call> calls_;
};

}  // namespace snug::bench

#endif  // TESTS_BENCH_STEP_TIMED_DEVICE_H_
