// grpc.reflection.v1alpha.ServerReflection: what a client that has no .proto files learns of the
// daemon's services, as grpcurl asks. gRPC's own has blocking calls, each of which holds a thread,
// and nobody counts those that are taken back.
#ifndef SERVER_GRPC_REFLECTION_H_
#define SERVER_GRPC_REFLECTION_H_

#include <atomic>

#include "server/grpc/counted_call.h"

namespace snug::server {

// For any thread. Outlives its calls.
class Reflection {
 public:
  // Beyond so many at a time it ends with RESOURCE_EXHAUSTED.
  grpc::ServerGenericBidiReactor* Answer(CancelHook on_cancel);

 private:
  std::atomic<int> calls_{0};
};

}  // namespace snug::server

#endif  // SERVER_GRPC_REFLECTION_H_
