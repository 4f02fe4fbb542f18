#include "server/grpc/watch_call.h"

#include <memory>
#include <utility>

#include "server/grpc/grpc_status.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

class WatchReactor;

// What outlives the call: the index and the registry may still hold it when gRPC has let go of the
// reactor.
class WatchCore : public JobWatcher, public Stoppable {
 public:
  explicit WatchCore(WatchReactor* call) : call_(call) {}

  void OnChange(const JobPtr& job) override {
    absl::MutexLock lock(&mutex_);
    pending_ = job;
    Advance();
  }
  void End(absl::Status why) override {
    absl::MutexLock lock(&mutex_);
    if (end_.ok()) end_ = std::move(why);
    ending_ = true;
    Advance();
  }
  void OnWritten(bool ok) {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) {
      end_ = absl::CancelledError("the client has gone");
      ending_ = true;
    }
    Advance();
  }

 private:
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  WatchReactor* const call_;  // Alive until finished_.
  JobPtr pending_ ABSL_GUARDED_BY(mutex_);
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class WatchReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit WatchReactor(CancelHook on_cancel)
      : on_cancel_(std::move(on_cancel)), core_(std::make_shared<WatchCore>(this)) {}
  const std::shared_ptr<WatchCore>& core() { return core_; }
  void Write(grpc::ByteBuffer bytes) {
    bytes_ = std::move(bytes);
    StartWrite(&bytes_);
  }

 private:
  // A reaction may lead to OnDone on another thread, which deletes this call: the core must outlast
  // the reaction.
  void OnWriteDone(bool ok) override {
    const std::shared_ptr<WatchCore> core = core_;
    core->OnWritten(ok);
  }
  void OnCancel() override {
    on_cancel_();
    const std::shared_ptr<WatchCore> core = core_;
    core->End(absl::CancelledError("the client has gone"));
  }
  void OnDone() override { delete this; }

  const CancelHook on_cancel_;
  const std::shared_ptr<WatchCore> core_;
  grpc::ByteBuffer bytes_;
};

// StartWrite and Finish only hand over to gRPC: their reactions come on its own threads, never
// inside these calls.
void WatchCore::Advance() {
  if (writing_ || finished_) return;
  if (pending_ != nullptr && end_.ok()) {
    const JobPtr job = std::exchange(pending_, nullptr);
    writing_ = true;
    ending_ = ending_ || IsTerminal(job->state());
    call_->Write(Encode(*job));
  } else if (ending_) {
    finished_ = true;
    call_->Finish(ToGrpcStatus(end_));
  }
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchCall(const BeginWatch& begin,
                                                      StreamRegistry& streams, StillLetIn still,
                                                      CancelHook on_cancel) {
  auto* call = new WatchReactor(std::move(on_cancel));
  const std::shared_ptr<WatchCore> core = call->core();
  const absl::StatusOr<JobPtr> job = begin(core);
  if (!job.ok())
    core->End(job.status());
  else if (!streams.Add(core, std::move(still)))
    core->End(Draining());
  else
    core->OnChange(*job);
  return call;
}

}  // namespace snug::server
