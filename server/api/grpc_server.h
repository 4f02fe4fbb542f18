// The gRPC server on its unix socket and its TCP addresses, those with TLS alone. Connections are
// accepted here and handed to gRPC one by one: gRPC's own listener of this version can stop
// accepting for ever after the process once ran out of descriptors (CVE-2023-4785).
#ifndef SERVER_API_GRPC_SERVER_H_
#define SERVER_API_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/peers.h"
#include "server/node/connection_caps.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

class GrpcServer {
 public:
  // `service` and `peers`, which is told of every connection, outlive the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const v1::DaemonConfig& config,
                                                           grpc::Service& service, Peers& peers);
  ~GrpcServer();

  // HOST:PORT of each address that is listened on, as the kernel has it.
  std::vector<std::string> addresses() const;

  // Calls from within the process, which show a token or a session as calls over TLS do.
  std::shared_ptr<grpc::Channel> InProcessChannel() const { return server_->InProcessChannel({}); }

  // Health says NOT_SERVING and nobody new comes in; calls under way go on.
  void StopAccepting();
  // Cancels what has not ended by then.
  void Shutdown(absl::Duration patience);

 private:
  // A TCP address, and where its connections get their TLS.
  struct Address {
    int listener = -1;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  };

  GrpcServer(std::string socket, int listener, int wake, Peers& peers);
  absl::Status Build(const v1::DaemonConfig& config, grpc::Service& service);
  void AcceptLoop();
  void AcceptLocal();
  void AcceptTls(Address& address);

  const std::string socket_;
  const int listener_;
  const int wake_;  // eventfd
  Peers& peers_;
  std::atomic<bool> stopping_{false};
  std::vector<Address> addresses_;
  ConnectionCaps connections_, tls_connections_;  // Of the accepting thread.
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_API_GRPC_SERVER_H_
