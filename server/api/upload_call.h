// An upload as a stream of chunks: each is written on a pool before the next is asked for.
#ifndef SERVER_API_UPLOAD_CALL_H_
#define SERVER_API_UPLOAD_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/scheduler/task_pool.h"
#include "server/upload/uploads.h"

namespace snug::server {

inline constexpr size_t kMaxUploadChunkBytes = 1 << 20;

// `begin` is called with the header and opens the file; `end` hears what came of it, once, also
// where the client went away.
using BeginUpload =
    std::function<absl::StatusOr<std::unique_ptr<Reception>>(const v1::UploadHeader& header)>;
using EndUpload = std::function<void(const absl::StatusOr<v1::File>& file)>;

grpc::ServerReadReactor<grpc::ByteBuffer>* ReceiveUpload(grpc::ByteBuffer* out, TaskPool& pool,
                                                         BeginUpload begin, EndUpload end);

}  // namespace snug::server

#endif  // SERVER_API_UPLOAD_CALL_H_
