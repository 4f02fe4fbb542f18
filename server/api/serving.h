// How each method of the service is called: decoded, allowed, audited. For the files that define
// methods, and nobody else.
#ifndef SERVER_API_SERVING_H_
#define SERVER_API_SERVING_H_

#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/api/authorise.h"
#include "server/api/file_ids.h"
#include "server/api/service.h"
#include "server/api/unary_call.h"

namespace snug::server {

// What the call was about: what came of it, else what it named.
template <typename Request, typename Response>
std::string ResourceOf(const Request& request, const absl::StatusOr<Response>& response) {
  if constexpr (std::is_same_v<Response, v1::Job>)
    if (response.ok() && !response->name().empty()) return response->name();
  if constexpr (std::is_same_v<Response, v1::CreateTokenResponse>)
    if (response.ok()) return absl::StrCat("tokens/", response->token().id());
  if constexpr (std::is_same_v<Response, v1::File>)
    if (response.ok()) return absl::StrCat("files/", response->id());
  if constexpr (requires { request.file(); }) return absl::StrCat("files/", request.file());
  if constexpr (requires { request.token_id(); })
    return absl::StrCat("tokens/", request.token_id());
  if constexpr (requires { request.job_id(); })
    if (!request.job_id().empty()) return absl::StrCat("jobs/", request.job_id());
  if constexpr (requires { request.id(); }) return absl::StrCat("jobs/", request.id());
  if constexpr (requires { request.device(); }) return absl::StrCat("devices/", request.device());
  return "";
}

// A call that may be made: by whom, and with the whole id of the job that it names.
template <typename Request>
absl::StatusOr<FineTuningService::Allowed<Request>> FineTuningService::Allow(
    const absl::StatusOr<Principal>& who, absl::string_view method, Request request) const {
  RETURN_IF_ERROR(who.status());
  constexpr bool kNamesJob = requires { request.set_id(""); };
  std::string job;
  if constexpr (kNamesJob) job = request.id();
  ASSIGN_OR_RETURN(const std::string whole, Authorise(*who, method, job, parts_.index));
  if constexpr (kNamesJob) request.set_id(whole);
  if constexpr (requires { request.mutable_spec(); })
    RETURN_IF_ERROR(ResolveFiles(*who, parts_.uploads, *request.mutable_spec()));
  return Allowed<Request>{std::move(request), *who};
}

// The answer that is also a line of the audit log.
template <typename Request, typename Response>
Answer<Response> FineTuningService::Audited(const char* method, const Principal& who,
                                            const Request& request, Answer<Response> answer) {
  if constexpr (requires { request.validate_only(); })
    if (request.validate_only()) return answer;
  return [&audit = parts_.audit, method, who, request,
          answer = std::move(answer)](absl::StatusOr<Response> response) {
    audit.Write({.who = who, .method = method, .resource = ResourceOf(request, response)},
                response.status(), absl::Now());
    answer(std::move(response));
  };
}

// Decodes, asks whether the call may be made, acts.
template <typename Request, typename Response, typename Act>
grpc::ServerUnaryReactor* FineTuningService::Serve(const Call& call, const Act& act) {
  return UnaryCall::Start<Request, Response>(
      *call.in, call.out, [&](const Request& request, Answer<Response> answer) {
        const absl::StatusOr<Principal> who = parts_.callers.Find(*call.context);
        if (who.ok() && ChangesSomething(call.method))
          answer = Audited(call.method, *who, request, std::move(answer));
        const absl::StatusOr<Allowed<Request>> allowed = Allow(who, call.method, request);
        if (!allowed.ok()) return answer(allowed.status());
        act(*allowed, std::move(answer));
      });
}

// Of a call that reads the disk: `act` gives the answer, on a thread that may wait for it.
template <typename Request, typename Response, typename Act>
grpc::ServerUnaryReactor* FineTuningService::OnPool(const Call& call, const Act& act) {
  return Serve<Request, Response>(
      call, [this, act](const Allowed<Request>& allowed, const Answer<Response>& answer) {
        const bool posted = parts_.pool.Post([allowed, answer, act] { answer(act(allowed)); });
        if (!posted) answer(Draining());
      });
}

// Of a stream: its request, decoded and allowed.
template <typename Request>
absl::StatusOr<Request> FineTuningService::Open(const Call& call) const {
  Request request;
  RETURN_IF_ERROR(Decode(*call.in, kMaxRequestBytes, request));
  ASSIGN_OR_RETURN(Allowed<Request> allowed,
                   Allow(parts_.callers.Find(*call.context), call.method, request));
  return std::move(allowed.request);
}

}  // namespace snug::server

#endif  // SERVER_API_SERVING_H_
