#include "server/grpc/stream_call.h"

#include <grpcpp/alarm.h>

#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

// Steps follow one another (produce, write, wait), each started by the end of the one before:
// nothing here runs twice at once, and Finish is called by the step that sees a reason to.
class PulledStream : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  class Ending : public Stoppable {
   public:
    void End(absl::Status why) override {
      absl::MutexLock lock(&mutex_);
      if (why_.ok()) why_ = std::move(why);
    }
    absl::Status why() {  // OK: it goes on.
      absl::MutexLock lock(&mutex_);
      return why_;
    }

   private:
    absl::Mutex mutex_;
    absl::Status why_ ABSL_GUARDED_BY(mutex_);
  };

  PulledStream(MessageSource<grpc::ByteBuffer> source, TaskPool& pool, CancelHook on_cancel)
      : source_(std::move(source)), pool_(pool), on_cancel_(std::move(on_cancel)) {}

  std::shared_ptr<Ending> ending() { return ending_; }
  void Refuse(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void Continue() {
    if (cancelled_) return Refuse(absl::CancelledError("the client has gone"));
    if (const absl::Status why = ending_->why(); !why.ok()) return Refuse(why);
    if (!pool_.Post([this] { Produce(); })) Refuse(Draining());
  }

 private:
  void Produce() {
    absl::StatusOr<Next<grpc::ByteBuffer>> next = source_();
    if (!next.ok()) return Refuse(next.status());
    if (next->kind == Next<grpc::ByteBuffer>::kEnd) return Finish(grpc::Status::OK);
    if (next->kind == Next<grpc::ByteBuffer>::kWait) {
      pause_.Set(absl::ToChronoTime(absl::Now() + next->wait), [this](bool) { Continue(); });
      return;
    }
    bytes_ = std::move(next->message);
    StartWrite(&bytes_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) cancelled_ = true;
    Continue();
  }
  void OnCancel() override {
    on_cancel_();
    cancelled_ = true;
  }
  void OnDone() override { delete this; }

  const MessageSource<grpc::ByteBuffer> source_;
  TaskPool& pool_;
  const CancelHook on_cancel_;
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
  std::atomic<bool> cancelled_{false};
  grpc::Alarm pause_;
  grpc::ByteBuffer bytes_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamCall(
    absl::StatusOr<MessageSource<grpc::ByteBuffer>> source, TaskPool& pool, StreamRegistry& streams,
    StillLetIn still, CancelHook on_cancel) {
  auto* call =
      new PulledStream(source.ok() ? *std::move(source) : MessageSource<grpc::ByteBuffer>(), pool,
                       std::move(on_cancel));
  if (!source.ok())
    call->Refuse(source.status());
  else if (!streams.Add(call->ending(), std::move(still)))
    call->Refuse(Draining());
  else
    call->Continue();
  return call;
}

}  // namespace snug::server
