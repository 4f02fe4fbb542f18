// TLS of an address that the daemon listens on.
#ifndef SERVER_GRPC_TLS_H_
#define SERVER_GRPC_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// Looks at the files now, and again every minute: what replaces them serves the connections that
// come then. INVALID_ARGUMENT with the file that is not what it has to be.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
    const v1::ListenConfig& config);

}  // namespace snug::server

#endif  // SERVER_GRPC_TLS_H_
