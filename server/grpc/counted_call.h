// Calls of methods that are none of snug.v1.FineTuning's. That one is taken back is counted, as of
// all calls (reset_guard.h).
#ifndef SERVER_GRPC_COUNTED_CALL_H_
#define SERVER_GRPC_COUNTED_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/server_callback.h>

#include <utility>

#include "server/grpc/streams.h"

namespace snug::server {

class CountedCall : public grpc::ServerGenericBidiReactor {
 public:
  explicit CountedCall(CancelHook on_cancel) : on_cancel_(std::move(on_cancel)) {}

 protected:
  void OnCancel() override { on_cancel_(); }

 private:
  void OnDone() override { delete this; }
  // Neither waits for anything, and no lock is held while gRPC is called: it need not hand them to
  // a thread of its own (unary_call.h).
  bool InternalInlineable() override { return true; }

  const CancelHook on_cancel_;
};

// A call that ends at once.
class EndedCall : public CountedCall {
 public:
  EndedCall(grpc::Status status, CancelHook on_cancel) : CountedCall(std::move(on_cancel)) {
    Finish(std::move(status));
  }
};

}  // namespace snug::server

#endif  // SERVER_GRPC_COUNTED_CALL_H_
