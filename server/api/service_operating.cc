// The service's methods for operators: the store, sessions, tokens, devices.
#include "server/api/backup.h"
#include "server/api/chunk_stream.h"
#include "server/api/serving.h"
#include "server/examine/examination.h"
#include "server/job/errors.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/drains.h"

namespace snug::server {
namespace {

absl::Status NoTenant(const std::string& name) {
  return InvalidRequest(
      {{"tenant", absl::StrCat("\"", name, "\" is no tenant of the daemon's configuration"),
        "UNKNOWN_TENANT"}});
}

}  // namespace

grpc::ServerUnaryReactor* FineTuningService::CheckStore(Context* context, const Bytes* in,
                                                        Bytes* out) {
  using Request = v1::CheckStoreRequest;
  using Reply = v1::CheckStoreResponse;
  return Serve<Request, Reply>(
      {context, "CheckStore", in, out},
      [this](const Allowed<Request>&, const Answer<Reply>& answer) {
        const bool posted = parts_.pool.Post([this, answer] { answer(Examine(parts_.store)); });
        if (!posted) answer(Draining());
      });
}

grpc::ServerUnaryReactor* FineTuningService::CreateSession(Context* context, const Bytes* in,
                                                           Bytes* out) {
  using Reply = v1::CreateSessionResponse;
  return Serve<v1::CreateSessionRequest, Reply>(
      {context, "CreateSession", in, out},
      [this](const Allowed<v1::CreateSessionRequest>& call, const Answer<Reply>& answer) {
        answer(parts_.sessions.Create(call.who, absl::Now()));
      });
}

grpc::ServerUnaryReactor* FineTuningService::CreateToken(Context* context, const Bytes* in,
                                                         Bytes* out) {
  using Request = v1::CreateTokenRequest;
  using Reply = v1::CreateTokenResponse;
  return Serve<Request, Reply>({context, "CreateToken", in, out},
                               [this](const Allowed<Request>& call, const Answer<Reply>& answer) {
                                 if (!parts_.tenants.Has(call.request.tenant()))
                                   return answer(NoTenant(call.request.tenant()));
                                 const bool posted =
                                     parts_.pool.Post([this, request = call.request, answer] {
                                       answer(parts_.tokens.Create(request, WallMicros()));
                                     });
                                 if (!posted) answer(Draining());
                               });
}

grpc::ServerUnaryReactor* FineTuningService::ListTokens(Context* context, const Bytes* in,
                                                        Bytes* out) {
  using Request = v1::ListTokensRequest;
  using Reply = v1::ListTokensResponse;
  return Serve<Request, Reply>({context, "ListTokens", in, out},
                               [this](const Allowed<Request>&, const Answer<Reply>& answer) {
                                 answer(parts_.tokens.List());
                               });
}

grpc::ServerUnaryReactor* FineTuningService::RevokeToken(Context* context, const Bytes* in,
                                                         Bytes* out) {
  using Request = v1::RevokeTokenRequest;
  return Serve<Request, v1::Token>(
      {context, "RevokeToken", in, out},
      [this](const Allowed<Request>& call, const Answer<v1::Token>& answer) {
        const bool posted = parts_.pool.Post([this, id = call.request.token_id(), answer] {
          answer(parts_.tokens.Revoke(id, WallMicros()));
        });
        if (!posted) answer(Draining());
      });
}

grpc::ServerUnaryReactor* FineTuningService::DrainDevice(Context* context, const Bytes* in,
                                                         Bytes* out) {
  return Serve<v1::DrainDeviceRequest, v1::Device>(
      {context, "DrainDevice", in, out}, [this](const auto& call, Answer<v1::Device> answer) {
        Drains(parts_.scheduler.core()).Drain(call.request, std::move(answer));
      });
}

grpc::ServerUnaryReactor* FineTuningService::UndrainDevice(Context* context, const Bytes* in,
                                                           Bytes* out) {
  return Serve<v1::UndrainDeviceRequest, v1::Device>(
      {context, "UndrainDevice", in, out}, [this](const auto& call, Answer<v1::Device> answer) {
        Drains(parts_.scheduler.core()).Undrain(call.request, std::move(answer));
      });
}

FineTuningService::Stream* FineTuningService::BackupStore(Context* context, const Bytes* in) {
  const auto request = Open<v1::BackupStoreRequest>({context, "BackupStore", in});
  absl::StatusOr<ChunkSource> source = request.ok() ? BackupSource(parts_.store, parts_.state_dir)
                                                    : absl::StatusOr<ChunkSource>(request.status());
  return StreamChunks(std::move(source), parts_.pool, parts_.streams);
}

}  // namespace snug::server
