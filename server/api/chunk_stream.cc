#include "server/api/chunk_stream.h"

#include <utility>

#include "absl/time/clock.h"
#include "server/api/grpc_status.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

// Steps follow one another (produce, write, wait), each started by the end of the one before:
// nothing here runs twice at once, and Finish is called by the step that sees a reason to.
class ChunkCall : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  struct Ending : Stoppable {
    void Stop() override { draining = true; }
    std::atomic<bool> draining{false};
  };

  ChunkCall(ChunkSource source, TaskPool& pool) : source_(std::move(source)), pool_(pool) {}

  std::shared_ptr<Ending> ending() { return ending_; }
  void Refuse(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void Continue() {
    if (cancelled_) return Refuse(absl::CancelledError("the client has gone"));
    if (ending_->draining || !pool_.Post([this] { Produce(); })) Refuse(Draining());
  }

 private:
  void Produce() {
    absl::StatusOr<NextChunk> next = source_();
    if (!next.ok()) return Refuse(next.status());
    if (next->kind == NextChunk::kEnd) return Finish(grpc::Status::OK);
    if (next->kind == NextChunk::kWait) {
      pause_.Set(absl::ToChronoTime(absl::Now() + next->wait), [this](bool) { Continue(); });
      return;
    }
    bytes_ = std::move(next->chunk);
    StartWrite(&bytes_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) cancelled_ = true;
    Continue();
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

  const ChunkSource source_;
  TaskPool& pool_;
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();
  std::atomic<bool> cancelled_{false};
  grpc::Alarm pause_;
  grpc::ByteBuffer bytes_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamChunks(absl::StatusOr<ChunkSource> source,
                                                         TaskPool& pool, StreamRegistry& streams) {
  auto* call = new ChunkCall(source.ok() ? *std::move(source) : ChunkSource(), pool);
  if (!source.ok())
    call->Refuse(source.status());
  else if (!streams.Add(call->ending()))
    call->Refuse(Draining());
  else
    call->Continue();
  return call;
}

}  // namespace snug::server
