// A stream of the API as a call of gRPC: a log, a download, an answer's tokens. Its source is read
// on a pool, one message at a time.
#ifndef SERVER_GRPC_STREAM_CALL_H_
#define SERVER_GRPC_STREAM_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <utility>

#include "absl/status/statusor.h"
#include "proto/snug/status_macros.h"
#include "server/api/message_source.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/streams.h"
#include "server/scheduler/task_pool.h"

namespace snug::server {

// The same stream, each message as its bytes.
template <typename Message>
MessageSource<grpc::ByteBuffer> Encoded(MessageSource<Message> source) {
  return [source = std::move(source)]() -> absl::StatusOr<Next<grpc::ByteBuffer>> {
    ASSIGN_OR_RETURN(const Next<Message> next, source());
    Next<grpc::ByteBuffer> encoded = {.kind = static_cast<Next<grpc::ByteBuffer>::Kind>(next.kind),
                                      .message = {},
                                      .wait = next.wait};
    if (next.kind == Next<Message>::kMessage) encoded.message = Encode(next.message);
    return encoded;
  };
}

// An error ends the call with it.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamCall(
    absl::StatusOr<MessageSource<grpc::ByteBuffer>> source, TaskPool& pool, StreamRegistry& streams,
    StillLetIn still, CancelHook on_cancel);

}  // namespace snug::server

#endif  // SERVER_GRPC_STREAM_CALL_H_
