#include "server/api/upload_call.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "server/api/grpc_status.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

class UploadCall : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadCall(grpc::ByteBuffer* out, TaskPool& pool, BeginUpload begin, EndUpload end)
      : out_(out), pool_(pool), begin_(std::move(begin)), end_(std::move(end)) {
    StartRead(&chunk_);
  }

  // One at a time: the next is read when this one is written.
  void OnReadDone(bool ok) override {
    if (!ok) return Answer(absl::CancelledError("the upload broke off"));
    const bool posted = pool_.Post([this] { Take(); });
    if (!posted) Answer(WithReason(absl::UnavailableError("the daemon is busy"), "BUSY"));
  }
  void OnDone() override { delete this; }

 private:
  void Take() {
    const absl::StatusOr<bool> last = Append();
    if (!last.ok()) return Answer(last.status());
    *last ? Answer(reception_->Finish()) : StartRead(&chunk_);
  }

  // Whether it was the last one.
  absl::StatusOr<bool> Append() {
    v1::UploadFileRequest request;
    RETURN_IF_ERROR(Decode(chunk_, kMaxUploadChunkBytes + (64 << 10), request));
    if (reception_ == nullptr) {
      if (!request.has_header())
        return InvalidRequest({{"header", "must be in the first message", "BAD_FIELD"}});
      ASSIGN_OR_RETURN(reception_, begin_(request.header()));
    }
    RETURN_IF_ERROR(reception_->Append(request.content()));
    return request.last();
  }

  void Answer(const absl::StatusOr<v1::File>& file) {
    end_(file);
    if (file.ok()) *out_ = Encode(*file);
    Finish(ToGrpcStatus(file.status()));
  }

  grpc::ByteBuffer* const out_;
  TaskPool& pool_;
  const BeginUpload begin_;
  const EndUpload end_;
  grpc::ByteBuffer chunk_;
  std::unique_ptr<Reception> reception_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* ReceiveUpload(grpc::ByteBuffer* out, TaskPool& pool,
                                                         BeginUpload begin, EndUpload end) {
  return new UploadCall(out, pool, std::move(begin), std::move(end));
}

}  // namespace snug::server
