// The gRPC server on its unix socket and its TCP addresses, those with TLS alone. Connections are
// accepted here and handed to gRPC one by one: gRPC's own listener of this version can stop
// accepting for ever after the process once ran out of descriptors (CVE-2023-4785).
#ifndef SERVER_GRPC_GRPC_SERVER_H_
#define SERVER_GRPC_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/grpc/connections.h"
#include "server/node/connection_caps.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

class OtherCalls;

class GrpcServer {
 public:
  // `service`, and `connections`, which is told of each and reviewed every few seconds, outlive the
  // server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const v1::DaemonConfig& config,
                                                           grpc::Service& service,
                                                           Connections& connections);
  ~GrpcServer();

  // HOST:PORT of each address that is listened on, as the kernel has it.
  std::vector<std::string> addresses() const;

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

  GrpcServer(std::string socket, int listener, Connections& connections);
  absl::Status Build(const v1::DaemonConfig& config, grpc::Service& service);
  void AcceptLoop();
  void ReviewStrangers();
  void ReviewStreams();
  void AcceptLocal();
  void AcceptTls(Address& address);

  const std::string socket_;
  const int listener_;
  int wake_ = -1;  // eventfd
  Connections& known_;
  std::atomic<bool> stopping_{false};
  std::vector<Address> addresses_;
  ConnectionCaps connections_, tls_connections_;          // Of the accepting thread.
  absl::Duration streams_reviewed_, strangers_reviewed_;  // By it, in SinceBoot().
  const std::unique_ptr<OtherCalls> other_calls_;         // Outlives the server.
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_GRPC_GRPC_SERVER_H_
