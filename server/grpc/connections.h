// What is known of gRPC's connections beside their calls.
#ifndef SERVER_GRPC_CONNECTIONS_H_
#define SERVER_GRPC_CONNECTIONS_H_

#include <string>

#include "server/grpc/peers.h"
#include "server/grpc/reset_guard.h"
#include "server/grpc/strangers.h"
#include "server/grpc/streams.h"
#include "server/node/clock.h"

namespace snug::server {

struct Connections {
  Peers peers;             // Those of the unix socket,
  Strangers strangers;     // and those of the network.
  StreamRegistry streams;  // Over all of them.
  ResetGuard resets{[this](const std::string& peer) {
    peers.Close(peer);
    strangers.Close(peer);
  }};

  // A call has been taken back before it was done; `peer` is what its context says.
  void NoteTakenBack(const std::string& peer) {
    constexpr const char* kGone = "unknown";  // gRPC's word for a connection that has closed.
    if (peer != kGone) resets.Count(peer, SinceBoot());
  }
};

}  // namespace snug::server

#endif  // SERVER_GRPC_CONNECTIONS_H_
