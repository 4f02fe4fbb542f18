// Who makes a call over gRPC. On the unix socket the connection says it; over TLS the client's
// certificate, where the address asks for one, else a token with each call.
#ifndef SERVER_GRPC_GRPC_CALLERS_H_
#define SERVER_GRPC_GRPC_CALLERS_H_

#include <grpcpp/server_context.h>

#include "absl/status/statusor.h"
#include "server/api/callers.h"
#include "server/grpc/connections.h"

namespace snug::server {

class GrpcCallers {
 public:
  // All outlive it.
  GrpcCallers(Connections& connections, Callers& callers)
      : connections_(connections), callers_(callers) {}

  // UNAUTHENTICATED: nobody knows him. RESOURCE_EXHAUSTED: he calls too often.
  absl::StatusOr<Principal> Find(const grpc::ServerContextBase& context);

  // A call that was taken back, before it is done.
  void NoteTakenBack(const grpc::ServerContextBase& context);

  // For the streams of one that was found; of nobody none is looked at.
  StillLetIn WatchOver(const absl::StatusOr<Principal>& who) const;

 private:
  absl::StatusOr<Principal> OverTls(const grpc::ServerContextBase& context);

  Connections& connections_;
  Callers& callers_;
};

}  // namespace snug::server

#endif  // SERVER_GRPC_GRPC_CALLERS_H_
