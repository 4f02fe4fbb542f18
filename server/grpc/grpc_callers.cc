#include "server/grpc/grpc_callers.h"

#include <grpc/grpc_security_constants.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/node/clock.h"

namespace snug::server {
namespace {

constexpr const char* kHeader = "authorization";
constexpr absl::string_view kBearer = "Bearer ";

absl::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

std::vector<std::string> Values(const grpc::AuthContext& context, const char* name) {
  std::vector<std::string> values;
  for (const grpc::string_ref& value : context.FindPropertyValues(name))
    values.emplace_back(value.data(), value.size());
  return values;
}

bool IsTls(const grpc::ServerContextBase& context) {
  const auto auth = context.auth_context();
  if (auth == nullptr) return false;
  const std::vector<std::string> types = Values(*auth, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  return types.size() == 1 && types.front() == GRPC_TLS_TRANSPORT_SECURITY_TYPE;
}

absl::StatusOr<absl::string_view> BearerOf(const grpc::ServerContextBase& context) {
  const auto [first, last] = context.client_metadata().equal_range(kHeader);
  if (first == last || std::next(first) != last ||
      !absl::StartsWithIgnoreCase(ViewOf(first->second), kBearer))
    return WithReason(
        absl::UnauthenticatedError("the call has no token: authorization must be \"Bearer TOKEN\""),
        "NO_TOKEN");
  return ViewOf(first->second).substr(kBearer.size());
}

}  // namespace

absl::StatusOr<Principal> GrpcCallers::Find(const grpc::ServerContextBase& context) {
  if (IsTls(context)) {
    absl::StatusOr<Principal> who = OverTls(context);
    // One who calls too often is known as well.
    if (absl::IsUnauthenticated(who.status()))
      connections_.strangers.CountCall(context.peer(), SinceBoot());
    else
      connections_.strangers.Acquaint(context.peer());
    return who;
  }
  if (std::optional<Principal> user = connections_.peers.Find(context.peer()))
    return callers_.OfUser(*std::move(user));
  return WithReason(absl::UnauthenticatedError("the daemon cannot tell who calls"),
                    "UNAUTHENTICATED");
}

void GrpcCallers::NoteTakenBack(const grpc::ServerContextBase& context) {
  connections_.NoteTakenBack(context.peer());
}

StillLetIn GrpcCallers::WatchOver(const absl::StatusOr<Principal>& who) const {
  if (!who.ok()) return [] { return absl::OkStatus(); };
  return [this, who = *who] { return callers_.StillLetIn(who); };
}

// An address that asks for certificates lets nobody in without one, and the others ask for none.
absl::StatusOr<Principal> GrpcCallers::OverTls(const grpc::ServerContextBase& context) {
  const auto auth = context.auth_context();
  const std::vector<std::string> subjects = Values(*auth, GRPC_X509_SUBJECT_PROPERTY_NAME);
  if (!subjects.empty())
    return callers_.OfCertificate(
        {.uris = Values(*auth, GRPC_PEER_URI_PROPERTY_NAME), .subject = subjects.front()});
  ASSIGN_OR_RETURN(const absl::string_view token, BearerOf(context));
  return callers_.OfToken(token);
}

}  // namespace snug::server
