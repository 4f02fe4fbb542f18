#include "server/grpc/upload_call.h"

#include <utility>

#include "proto/snug/status_macros.h"
#include "server/grpc/grpc_status.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

class UploadReactor : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadReactor(grpc::ByteBuffer* out, TaskPool& pool, BeginUpload begin, StillLetIn still,
                CancelHook on_cancel)
      : out_(out),
        pool_(pool),
        begin_(std::move(begin)),
        still_(std::move(still)),
        on_cancel_(std::move(on_cancel)) {
    StartRead(&chunk_);
  }

  // One at a time: the next is read when this one is written.
  void OnReadDone(bool ok) override {
    if (!ok) return Answer(absl::CancelledError("the upload broke off"));
    const bool posted = pool_.Post([this] { Take(); });
    if (!posted) Answer(WithReason(absl::UnavailableError("the daemon is busy"), "BUSY"));
  }
  void OnCancel() override { on_cancel_(); }
  void OnDone() override { delete this; }

 private:
  void Take() {
    const absl::StatusOr<bool> last = Append();
    if (!last.ok()) return Answer(last.status());
    *last ? Answer(upload_->Finish()) : StartRead(&chunk_);
  }

  // Whether it was the last one.
  absl::StatusOr<bool> Append() {
    v1::UploadFileRequest request;
    RETURN_IF_ERROR(still_());
    RETURN_IF_ERROR(Decode(chunk_, kMaxUploadChunkBytes + (64 << 10), request));
    if (upload_ == nullptr) {
      if (!request.has_header())
        return InvalidRequest({{"header", "must be in the first message", "BAD_FIELD"}});
      ASSIGN_OR_RETURN(upload_, begin_(request.header()));
    }
    RETURN_IF_ERROR(upload_->Append(request.content()));
    return request.last();
  }

  void Answer(const absl::StatusOr<v1::File>& file) {
    if (file.ok()) *out_ = Encode(*file);
    Finish(ToGrpcStatus(file.status()));
  }

  grpc::ByteBuffer* const out_;
  TaskPool& pool_;
  const BeginUpload begin_;
  const StillLetIn still_;
  const CancelHook on_cancel_;
  grpc::ByteBuffer chunk_;
  std::unique_ptr<FileUpload> upload_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* UploadCall(grpc::ByteBuffer* out, TaskPool& pool,
                                                      BeginUpload begin, StillLetIn still,
                                                      CancelHook on_cancel) {
  return new UploadReactor(out, pool, std::move(begin), std::move(still), std::move(on_cancel));
}

}  // namespace snug::server
