#include "server/grpc/health.h"

#include <utility>

#include "absl/status/statusor.h"
#include "proto/snug/status_macros.h"
#include "server/api/api.h"
#include "server/grpc/grpc_status.h"

namespace snug::server {

class HealthWatchCall;

// What outlives a call of Watch, as Health may still hold it. No lock is held while gRPC is called.
// The call is there as long as it is not finished, and it is not finished while it writes.
class HealthWatch {
 public:
  HealthWatch(const Health& health, HealthWatchCall* call) : health_(health), call_(call) {}

  // This service is asked for.
  void Begin(std::string service) {
    {
      absl::MutexLock lock(&mutex_);
      service_ = std::move(service);
      asked_ = true;
    }
    Advance();
  }
  // The first reason counts.
  void End(grpc::Status why) {
    {
      absl::MutexLock lock(&mutex_);
      SetEnd(std::move(why));
    }
    Advance();
  }
  void OnWritten(bool ok) {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      if (!ok) SetEnd(grpc::Status::CANCELLED);
    }
    Advance();
  }
  // Says the status where it is another than was said last.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void SetEnd(grpc::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!std::exchange(ending_, true)) end_ = std::move(why);
  }

  const Health& health_;
  HealthWatchCall* const call_;
  absl::Mutex mutex_;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;  // The request has been read.
  std::string service_ ABSL_GUARDED_BY(mutex_);
  // Nobody is told UNKNOWN.
  Health::Response::ServingStatus said_ ABSL_GUARDED_BY(mutex_) = Health::Response::UNKNOWN;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status end_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

grpc::ByteBuffer HealthAnswer(Health::Response::ServingStatus status) {
  Health::Response response;
  response.set_status(status);
  return Encode(response);
}

// The service that a request names; `ok` says whether there is a request.
absl::StatusOr<std::string> AskedService(bool ok, const grpc::ByteBuffer& bytes) {
  if (!ok) return absl::InvalidArgumentError("the call has no request");
  grpc::health::v1::HealthCheckRequest request;
  RETURN_IF_ERROR(Decode(bytes, kMaxRequestBytes, request));
  return request.service();
}

// One step follows another, and the only one that is left finishes the call.
class HealthCheckCall : public CountedCall {
 public:
  HealthCheckCall(const Health& health, CancelHook on_cancel)
      : CountedCall(std::move(on_cancel)), health_(health) {
    StartRead(&in_);
  }

 private:
  void OnReadDone(bool ok) override {
    const absl::StatusOr<std::string> service = AskedService(ok, in_);
    if (!service.ok()) return Finish(ToGrpcStatus(service.status()));
    const Health::Response::ServingStatus status = health_.StatusOf(*service);
    if (status == Health::Response::SERVICE_UNKNOWN)
      return Finish(ToGrpcStatus(absl::NotFoundError("there is no service of this name")));
    out_ = HealthAnswer(status);
    StartWriteAndFinish(&out_, grpc::WriteOptions(), grpc::Status::OK);
  }

  const Health& health_;
  grpc::ByteBuffer in_, out_;
};

}  // namespace

class HealthWatchCall : public CountedCall {
 public:
  HealthWatchCall(Health& health, CancelHook on_cancel)
      : CountedCall(std::move(on_cancel)),
        health_(health),
        watch_(std::make_shared<HealthWatch>(health, this)) {
    StartRead(&in_);
  }
  void Say(Health::Response::ServingStatus status) {
    out_ = HealthAnswer(status);
    StartWrite(&out_);
  }

 private:
  // A reaction may lead to OnDone on another thread: the watch must outlast the reaction.
  void OnReadDone(bool ok) override {
    const std::shared_ptr<HealthWatch> watch = watch_;
    absl::StatusOr<std::string> service = AskedService(ok, in_);
    if (!service.ok()) return watch->End(ToGrpcStatus(service.status()));
    health_.Add(watch);  // Before it asks for the status, so that it misses no change.
    watch->Begin(*std::move(service));
  }
  void OnWriteDone(bool ok) override {
    const std::shared_ptr<HealthWatch> watch = watch_;
    watch->OnWritten(ok);
  }
  void OnCancel() override {
    CountedCall::OnCancel();
    const std::shared_ptr<HealthWatch> watch = watch_;
    watch->End(grpc::Status::CANCELLED);
  }

  Health& health_;
  const std::shared_ptr<HealthWatch> watch_;
  grpc::ByteBuffer in_, out_;
};

void HealthWatch::Advance() {
  bool ends = false;
  grpc::Status end;
  Health::Response::ServingStatus status = Health::Response::UNKNOWN;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_ || (!ending_ && !asked_)) return;
    if (!ending_) status = health_.StatusOf(service_);
    if (!ending_ && status == said_) return;
    finished_ = ends = ending_;
    writing_ = !ends;
    said_ = status;
    end = end_;
  }
  if (ends)
    call_->Finish(std::move(end));
  else
    call_->Say(status);
}

Health::Response::ServingStatus Health::StatusOf(const std::string& service) const {
  if (!service.empty() && service != "snug.v1.FineTuning") return Response::SERVICE_UNKNOWN;
  return serving_ ? Response::SERVING : Response::NOT_SERVING;
}

void Health::StopServing() {
  serving_ = false;
  std::vector<std::weak_ptr<HealthWatch>> watches;
  {
    absl::MutexLock lock(&mutex_);
    watches = watches_;
  }
  for (const std::weak_ptr<HealthWatch>& known : watches)
    if (const std::shared_ptr<HealthWatch> watch = known.lock()) watch->Advance();
}

grpc::ServerGenericBidiReactor* Health::Check(CancelHook on_cancel) const {
  return new HealthCheckCall(*this, std::move(on_cancel));
}

grpc::ServerGenericBidiReactor* Health::Watch(CancelHook on_cancel) {
  return new HealthWatchCall(*this, std::move(on_cancel));
}

void Health::Add(const std::shared_ptr<HealthWatch>& watch) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(watches_, [](const std::weak_ptr<HealthWatch>& known) { return known.expired(); });
  watches_.push_back(watch);
}

}  // namespace snug::server
