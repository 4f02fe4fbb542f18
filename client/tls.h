// A gRPC channel over TLS.
#ifndef CLIENT_TLS_H_
#define CLIENT_TLS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/server.h"
#include "grpcpp/grpcpp.h"

namespace snug::client {

// To https://HOST:PORT, with the token or the client's certificate. Nothing has been sent yet.
absl::StatusOr<std::shared_ptr<grpc::Channel>> TlsChannel(const Server& server,
                                                          const grpc::ChannelArguments& arguments);

}  // namespace snug::client

#endif  // CLIENT_TLS_H_
