// What gRPC hands to threads of its own, in an order that ThreadSanitizer sees: see grpc_calls.cc.
#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/version_info.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "tests/threads/library.h"

namespace grpc {
namespace {

struct RunAtAlarm {
  Alarm* alarm;
  std::function<void(bool)> run;

  // Itself is read before what wrote it is known to be over.
  __attribute__((no_sanitize_thread)) void operator()(bool rang) const {
    __tsan_acquire(alarm);
    run(rang);
  }
};

}  // namespace

void Alarm::SetInternal(gpr_timespec deadline, std::function<void(bool)> run) {
  using OfAlarm = void(Alarm*, gpr_timespec, std::function<void(bool)>);
  static const auto next = snug::threads::Library<OfAlarm>(
      "_ZN4grpc5Alarm11SetInternalE12gpr_timespecSt8functionIFvbEE");
  RunAtAlarm at_alarm = {this, std::move(run)};
  std::function<void(bool)> ordered = std::move(at_alarm);
  __tsan_release(this);
  next(this, deadline, std::move(ordered));
}

namespace internal {

// The bodies are those of the library but for its threads: to be looked at with another one.
static_assert(GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51);

// Each of our calls releases when it counts down. The last to do so may be the library, whose
// acquiring is not seen: so these two acquire what the others have released.
void ServerCallbackCall::ScheduleOnDone(bool here) {
  callbacks_outstanding_.load(std::memory_order_acquire);
  if (here) return CallOnDone();
  std::thread([this] { CallOnDone(); }).detach();
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  on_cancel_conditions_remaining_.load(std::memory_order_acquire);
  if (reactor->InternalInlineable()) return reactor->OnCancel();
  Ref();
  std::thread([this, reactor] {
    reactor->OnCancel();
    MaybeDone();
  }).detach();
}

}  // namespace internal
}  // namespace grpc
