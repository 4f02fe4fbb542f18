#include "tests/bench/step/timed_device.h"

#include <time.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/op_table.h"

namespace snug::bench {
namespace {

TimedDevice* timed = nullptr;

template <size_t kCode, bool kForward>
void Timed(const execute::OpRun& run) {
  timed->Run(kCode, kForward, run);
}

template <size_t... kCodes>
execute::OpFunctionTable TimedFunctions(std::index_sequence<kCodes...>) {
  return {{{Timed<kCodes, true>, Timed<kCodes, false>}...}};
}

class Host final : public StreamClock {
 public:
  int64_t Mark(kernels::Stream /*stream*/) override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  double Seconds(int64_t begin, int64_t end) override {
    return 1e-9 * static_cast<double>(end - begin);
  }
  void Forget() override {}
};

}  // namespace

std::unique_ptr<StreamClock> HostClock() { return std::make_unique<Host>(); }

TimedDevice::TimedDevice(std::unique_ptr<execute::Device> device)
    : device_(std::move(device)),
      ops_(TimedFunctions(std::make_index_sequence<program::kOpCodes>())),
      clock_(device_->machine().cpu ? HostClock() : EventClock()) {
  timed = this;
}

TimedDevice::~TimedDevice() { timed = nullptr; }

void TimedDevice::Run(size_t code, bool forward, const execute::OpRun& run) {
  const execute::OpFunctions& functions = device_->ops()[code];
  const int64_t begin = clock_->Mark(run.stream());
  (forward ? functions.forward : functions.backward)(run);
  calls_.push_back({code, forward, begin, clock_->Mark(run.stream())});
}

absl::StatusOr<std::map<std::string, TimedDevice::Time>> TimedDevice::Take() {
  RETURN_IF_ERROR(device_->Synchronize());
  std::map<std::string, Time> times;
  for (const Call& call : calls_) {
    const char* name = program::RowOf(static_cast<program::OpCode>(call.code)).name;
    Time& time = times[absl::StrCat(name, call.forward ? " forward" : " backward")];
    time.seconds += clock_->Seconds(call.begin, call.end);
    ++time.calls;
  }
  calls_.clear();
  clock_->Forget();
  return times;
}

}  // namespace snug::bench
