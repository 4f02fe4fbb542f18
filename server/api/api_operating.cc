// The API's calls for operators: the store, sessions, tokens, devices.
#include "google/protobuf/util/time_util.h"
#include "server/api/backup.h"
#include "server/api/calls.h"
#include "server/api/pages.h"
#include "server/examine/examination.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/drains.h"

namespace snug::server {
namespace {

using google::protobuf::util::TimeUtil;

absl::Status NoTenant(const std::string& name) {
  return InvalidRequest(
      {{"tenant", absl::StrCat("\"", name, "\" is no tenant of the daemon's configuration"),
        "UNKNOWN_TENANT"}});
}

}  // namespace

void Api::CheckStore(const Principal& who, const v1::CheckStoreRequest& request,
                     Answer<v1::CheckStoreResponse> answer) {
  // However many ask: one looks through the store at a time.
  OnChecks(who, request, std::move(answer),
           [this](const auto&) { return Examine(parts_.store, parts_.premises); },
           {.key = "CheckStore"});
}

absl::StatusOr<MessageSource<v1::FileChunk>> Api::BackupStore(
    const Principal& who, const v1::BackupStoreRequest& request) {
  const absl::Status allowed = Allow(who, request).status();
  parts_.audit.Write({who, MethodOf<v1::BackupStoreRequest>(), ""}, allowed, absl::Now());
  RETURN_IF_ERROR(allowed);
  return BackupSource(parts_.store, parts_.state_dir);
}

void Api::CreateSession(const Principal& who, const v1::CreateSessionRequest& request,
                        Answer<v1::CreateSessionResponse> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    reply(parts_.sessions.Create(call.who, absl::Now()));
  });
}

void Api::CreateToken(const Principal& who, const v1::CreateTokenRequest& request,
                      Answer<v1::CreateTokenResponse> answer) {
  OnPool(who, request, std::move(answer),
         [this](const auto& call) -> absl::StatusOr<v1::CreateTokenResponse> {
           if (!parts_.tenants.Has(call.request.tenant())) return NoTenant(call.request.tenant());
           return parts_.tokens.Create(call.request, WallMicros());
         });
}

void Api::ListTokens(const Principal& who, const v1::ListTokensRequest& request,
                     Answer<v1::ListTokensResponse> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    const std::string& parent = call.request.parent();
    std::vector<Listed<v1::Token>> list;
    for (v1::Token& token : parts_.tokens.List())
      if (parent.empty() || parent == absl::StrCat("tenants/", token.tenant()))
        list.push_back(
            {SortedText(TimeUtil::TimestampToMicroseconds(token.create_time())) + token.id(),
             std::move(token)});
    reply(ResponseOf(PageOf(call.request, std::move(list), page_tokens_),
                     &v1::ListTokensResponse::add_tokens));
  });
}

void Api::RevokeToken(const Principal& who, const v1::RevokeTokenRequest& request,
                      Answer<v1::Token> answer) {
  OnPool(who, request, std::move(answer), [this](const auto& call) {
    return parts_.tokens.Revoke(call.request.token_id(), WallMicros());
  });
}

void Api::DrainDevice(const Principal& who, const v1::DrainDeviceRequest& request,
                      Answer<v1::Device> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    Drains(parts_.scheduler.core()).Drain(call.request, reply);
  });
}

void Api::UndrainDevice(const Principal& who, const v1::UndrainDeviceRequest& request,
                        Answer<v1::Device> answer) {
  Serve(who, request, std::move(answer), [this](const auto& call, const auto& reply) {
    Drains(parts_.scheduler.core()).Undrain(call.request, reply);
  });
}

}  // namespace snug::server
