#include "server/grpc/other_calls.h"

#include <string>

#include "server/node/clock.h"

namespace snug::server {

grpc::ServerGenericBidiReactor* OtherCalls::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  connections_.strangers.CountCall(context->peer(), SinceBoot());
  const CancelHook on_cancel = [this, context] { connections_.NoteTakenBack(context->peer()); };
  const std::string& method = context->method();
  if (method == "/grpc.health.v1.Health/Check") return health_.Check(on_cancel);
  if (method == "/grpc.health.v1.Health/Watch") return health_.Watch(on_cancel);
  if (method == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    return reflection_.Answer(on_cancel);
  return new EndedCall(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), on_cancel);
}

}  // namespace snug::server
