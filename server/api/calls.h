// How each call of the API is made: allowed, audited, done. For the files that define calls, and
// nobody else.
#ifndef SERVER_API_CALLS_H_
#define SERVER_API_CALLS_H_

#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/api/api.h"
#include "server/api/authorise.h"
#include "server/api/file_ids.h"
#include "server/api/required.h"
#include "server/api/take_name.h"
#include "server/job/errors.h"
#include "server/job/names.h"

namespace snug::server {

// A call is named by its request, so none can be allowed in another's name: GetJobRequest is
// "GetJob".
template <typename Request>
const std::string& MethodOf() {
  static const std::string method(absl::StripSuffix(Request::descriptor()->name(), "Request"));
  return method;
}

// What came of the call; or empty.
template <typename Response>
std::string ResourceMade(const absl::StatusOr<Response>& response) {
  if (!response.ok()) return "";
  if constexpr (std::is_same_v<Response, v1::Job>) return response->name();
  if constexpr (std::is_same_v<Response, v1::CreateTokenResponse>)
    return absl::StrCat("tokens/", response->token().id());
  if constexpr (std::is_same_v<Response, v1::File>) return absl::StrCat("files/", response->id());
  return "";
}

// What the call named; or empty.
template <typename Request>
std::string ResourceNamed(const Request& request) {
  const auto named = [](absl::string_view collection, const std::string& id) {
    return IsName(id) ? id : absl::StrCat(collection, "/", id);
  };
  if constexpr (requires { request.file(); }) return named("files", request.file());
  if constexpr (requires { request.token_id(); }) return named("tokens", request.token_id());
  if constexpr (requires { request.job_id(); })
    if (!request.job_id().empty()) return absl::StrCat("jobs/", request.job_id());
  if constexpr (requires { request.id(); }) return named("jobs", request.id());
  if constexpr (requires { request.device(); }) return named("devices", request.device());
  return "";
}

// A line of the audit log, about what came of the call, else about what it named.
template <typename Response>
void WriteAudit(AuditLog& audit, AuditedCall call, const absl::StatusOr<Response>& response) {
  if (std::string made = ResourceMade(response); !made.empty()) call.resource = std::move(made);
  audit.Write(call, response.status(), absl::Now());
}

template <typename Request>
bool IsAudited(const Request& request) {
  if constexpr (requires { request.validate_only(); })
    if (request.validate_only()) return false;
  return ChangesSomething(MethodOf<Request>());
}

template <typename Request>
absl::StatusOr<Api::Allowed<Request>> Api::Allow(const Principal& who, Request request) const {
  RETURN_IF_ERROR(MayCall(who, MethodOf<Request>()));
  RETURN_IF_ERROR(CheckRequired(request));
  RETURN_IF_ERROR(TakeName(TenantOf(who.name()), request));
  constexpr bool kNamesJob = requires { request.set_id(""); };
  std::string job;
  if constexpr (kNamesJob) job = request.id();
  ASSIGN_OR_RETURN(const std::string whole, Authorise(who, MethodOf<Request>(), job, parts_.index));
  if constexpr (kNamesJob) request.set_id(whole);
  if constexpr (requires { request.mutable_spec(); }) {
    RETURN_IF_ERROR(ResolveFiles(who, parts_.uploads, *request.mutable_spec()));
  }
  return Allowed<Request>{who, std::move(request)};
}

// Asks whether the call may be made; then `act` gets it, and a function that answers.
template <typename Request, typename Response, typename Act>
void Api::Serve(const Principal& who, const Request& request, Answer<Response> answer,
                const Act& act) {
  if (IsAudited(request)) {
    // One copy, shared by all copies of `answer`.
    struct Audited {
      AuditedCall call;
      Answer<Response> answer;
    };
    auto audited = std::make_shared<const Audited>(
        AuditedCall{who, MethodOf<Request>(), ResourceNamed(request)}, std::move(answer));
    answer = [&audit = parts_.audit, audited = std::move(audited)](auto response) {
      WriteAudit(audit, audited->call, response);
      audited->answer(std::move(response));
    };
  }
  absl::StatusOr<Allowed<Request>> call = Allow(who, request);
  if (!call.ok()) return answer(call.status());
  act(*std::move(call), answer);
}

// A call that reads the disk: `act` gives the answer, on a thread that may wait for it.
template <typename Request, typename Response, typename Act>
void Api::OnPool(const Principal& who, const Request& request, Answer<Response> answer,
                 const Act& act) {
  Serve(who, request, std::move(answer),
        [this, act](Allowed<Request> call, const Answer<Response>& reply) {
          const bool posted =
              parts_.pool.Post([call = std::move(call), reply, act] { reply(act(call)); });
          if (!posted) reply(Draining());
        });
}

// One that may read for long: of the checks' pool, where each user has his turn.
template <typename Request, typename Response, typename Act>
void Api::OnChecks(const Principal& who, const Request& request, Answer<Response> answer,
                   const Act& act, const CheckKind& kind) {
  Serve(who, request, std::move(answer),
        [this, act, kind](const Allowed<Request>& call, const Answer<Response>& reply) {
          const auto run = [call, reply, act] { reply(act(call)); };
          if (!parts_.checks.Post(
                  {.user = call.who.name(), .key = kind.key, .small = kind.small, .run = run}))
            reply(QueueFull("checks that wait", kMaxWaitingChecks));
        });
}

}  // namespace snug::server

#endif  // SERVER_API_CALLS_H_
