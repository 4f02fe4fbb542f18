// An upload as a stream of chunks: each is written on a pool before the next is asked for.
#ifndef SERVER_GRPC_UPLOAD_CALL_H_
#define SERVER_GRPC_UPLOAD_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/api/api.h"
#include "server/grpc/streams.h"

namespace snug::server {

inline constexpr size_t kMaxUploadChunkBytes = 1 << 20;

using BeginUpload =
    std::function<absl::StatusOr<std::unique_ptr<FileUpload>>(const v1::UploadHeader& header)>;

// `begin` is called once, with the header of the first message; `still` with each.
grpc::ServerReadReactor<grpc::ByteBuffer>* UploadCall(grpc::ByteBuffer* out, TaskPool& pool,
                                                      BeginUpload begin, StillLetIn still,
                                                      CancelHook on_cancel);

}  // namespace snug::server

#endif  // SERVER_GRPC_UPLOAD_CALL_H_
