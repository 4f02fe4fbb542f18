// Calls of every method that is none of snug.v1.FineTuning's: health, reflection, and methods that
// there are not. Nobody is asked who he is, so a stranger's are counted, and everybody's that are
// taken back.
#ifndef SERVER_GRPC_OTHER_CALLS_H_
#define SERVER_GRPC_OTHER_CALLS_H_

#include <grpcpp/generic/async_generic_service.h>

#include "server/grpc/connections.h"
#include "server/grpc/health.h"
#include "server/grpc/reflection.h"

namespace snug::server {

// Of one server, which it outlives.
class OtherCalls : public grpc::CallbackGenericService {
 public:
  // `connections` outlives it.
  explicit OtherCalls(Connections& connections) : connections_(connections) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // Health says NOT_SERVING from now on.
  void StopServing() { health_.StopServing(); }

 private:
  Connections& connections_;
  Health health_;
  Reflection reflection_;
};

}  // namespace snug::server

#endif  // SERVER_GRPC_OTHER_CALLS_H_
