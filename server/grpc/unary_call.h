// One unary call whose answer may come later and from another thread. Finishes exactly once: with
// the answer, or when the client has gone.
#ifndef SERVER_GRPC_UNARY_CALL_H_
#define SERVER_GRPC_UNARY_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/api/api.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/streams.h"

namespace snug::server {

class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  // Parses `in`; then `act` is called with the request and a function that answers. That function
  // may be called from any thread, also after the call has ended.
  template <typename Request, typename Response, typename Act>
  static grpc::ServerUnaryReactor* Start(const grpc::ByteBuffer& in, grpc::ByteBuffer* out,
                                         Act&& act, CancelHook on_cancel) {
    auto* call = new UnaryCall(std::move(on_cancel));
    auto state = call->state_;
    auto answer = [state, out](absl::StatusOr<Response> response) {
      if (state->finished.exchange(true)) return;
      if (response.ok()) *out = Encode(*response);
      state->call->Finish(ToGrpcStatus(response.status()));
    };
    Request request;
    const absl::Status parsed = Decode(in, kMaxRequestBytes, request);
    if (parsed.ok())
      act(request, Answer<Response>(std::move(answer)));
    else
      answer(parsed);
    return call;
  }

 private:
  struct State {
    std::atomic<bool> finished{false};
    UnaryCall* call = nullptr;  // Not touched once finished is set by somebody else.
  };

  explicit UnaryCall(CancelHook on_cancel) : on_cancel_(std::move(on_cancel)) {
    state_->call = this;
  }
  void OnCancel() override {
    on_cancel_();
    if (!state_->finished.exchange(true)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }
  // Neither waits for anything: gRPC need not hand them to a thread of its own. It says that this
  // is not of its API: to be looked at whenever gRPC changes.
  bool InternalInlineable() override { return true; }

  const CancelHook on_cancel_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace snug::server

#endif  // SERVER_GRPC_UNARY_CALL_H_
