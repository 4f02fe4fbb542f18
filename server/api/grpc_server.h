// The gRPC server on its unix socket. Connections are accepted here and handed to gRPC one by one:
// gRPC's own listener of this version can stop accepting for ever after the process once ran out of
// descriptors (CVE-2023-4785).
#ifndef SERVER_API_GRPC_SERVER_H_
#define SERVER_API_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/peers.h"
#include "server/node/connection_caps.h"

namespace snug::server {

class GrpcServer {
 public:
  // `service` and `peers`, which is told of every connection, outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& socket,
                                                           grpc::Service& service, Peers& peers);
  ~GrpcServer();

  // Health says NOT_SERVING and nobody new comes in; calls under way go on.
  void StopAccepting();
  // Cancels what has not ended by then.
  void Shutdown(absl::Duration patience);

 private:
  GrpcServer(std::string socket, int listener, int wake, Peers& peers);
  void AcceptLoop();

  const std::string socket_;
  const int listener_;
  const int wake_;  // eventfd
  Peers& peers_;
  std::atomic<bool> stopping_{false};
  ConnectionCaps connections_;  // Of the accepting thread.
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_API_GRPC_SERVER_H_
