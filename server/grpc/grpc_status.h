// absl::Status -> grpc::Status with google.rpc details, and messages <-> raw bytes.
#ifndef SERVER_GRPC_GRPC_STATUS_H_
#define SERVER_GRPC_GRPC_STATUS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

namespace snug::server {

// Every error leaves with an ErrorInfo; one that has none gets its code's name as the reason.
grpc::Status ToGrpcStatus(const absl::Status& status);

// INVALID_ARGUMENT with a BadRequest for bytes that are no such message or larger than `max_bytes`:
// gRPC itself would say UNIMPLEMENTED.
absl::Status Decode(const grpc::ByteBuffer& bytes, size_t max_bytes,
                    google::protobuf::MessageLite& message);

grpc::ByteBuffer Encode(const google::protobuf::MessageLite& message);

}  // namespace snug::server

#endif  // SERVER_GRPC_GRPC_STATUS_H_
