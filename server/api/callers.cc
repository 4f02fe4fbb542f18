#include "server/api/callers.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/scheduler/clock.h"

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

absl::Status Unknown(absl::string_view message, absl::string_view reason) {
  return WithReason(absl::UnauthenticatedError(message), reason);
}

absl::StatusOr<absl::string_view> BearerOf(const grpc::ServerContextBase& context) {
  const auto [first, last] = context.client_metadata().equal_range(kHeader);
  if (first == last || std::next(first) != last ||
      !absl::StartsWithIgnoreCase(ViewOf(first->second), kBearer))
    return Unknown("the call has no token: authorization must be \"Bearer TOKEN\"", "NO_TOKEN");
  return ViewOf(first->second).substr(kBearer.size());
}

}  // namespace

bool RateLimit::Take(const std::string& name, absl::Duration now) {
  absl::MutexLock lock(&mutex_);
  const auto [found, is_new] =
      buckets_.try_emplace(name, Bucket{.calls = static_cast<double>(rate_.burst), .filled = now});
  Bucket& bucket = found->second;
  bucket.calls =
      std::min<double>(rate_.burst, bucket.calls + absl::ToDoubleSeconds(now - bucket.filled) *
                                                       rate_.per_second);
  bucket.filled = now;
  if (bucket.calls < 1) return false;
  bucket.calls -= 1;
  return true;
}

absl::StatusOr<Principal> Callers::Find(const grpc::ServerContextBase& context) {
  if (!IsTls(context)) {
    std::optional<Principal> user = peers_.Find(context.peer());
    if (user) return *std::move(user);
  }
  if (IsTls(context)) return WithinRate(OverTls(context));
  // No connection of ours: from within the process. A socket whose peer the kernel does not name
  // would come here as well, and has no session's secret.
  ASSIGN_OR_RETURN(const absl::string_view secret, BearerOf(context));
  return FindBySecret(secret);
}

absl::StatusOr<Principal> Callers::FindBySecret(absl::string_view secret) {
  return WithinRate(OfSecret(secret));
}

absl::StatusOr<Principal> Callers::WithinRate(absl::StatusOr<Principal> who) {
  if (who.ok() && !rate_.Take(who->credential, SinceBoot()))
    return TooFast(who->credential, rate_.per_second());
  return who;
}

// An address that asks for certificates lets nobody in without one, and the others ask for none.
absl::StatusOr<Principal> Callers::OverTls(const grpc::ServerContextBase& context) const {
  const auto auth = context.auth_context();
  const std::vector<std::string> subjects = Values(*auth, GRPC_X509_SUBJECT_PROPERTY_NAME);
  if (!subjects.empty()) {
    std::optional<Principal> who = tenants_.OfCertificate(
        {.uris = Values(*auth, GRPC_PEER_URI_PROPERTY_NAME), .subject = subjects.front()});
    if (who) return *std::move(who);
    return Unknown("this certificate is of no tenant's", "UNKNOWN_CERTIFICATE");
  }
  ASSIGN_OR_RETURN(const absl::string_view secret, BearerOf(context));
  return OfToken(secret);
}

absl::StatusOr<Principal> Callers::OfSecret(absl::string_view secret) const {
  std::optional<Principal> who = sessions_.Find(secret, absl::Now());
  return who ? *std::move(who) : OfToken(secret);
}

absl::StatusOr<Principal> Callers::OfToken(absl::string_view secret) const {
  ASSIGN_OR_RETURN(const TokenRecord token, tokens_.Check(secret, WallMicros()));
  if (!tenants_.Has(token.tenant))
    return Unknown(absl::StrCat("token ", token.id, " is of a tenant that there is not any more"),
                   "UNKNOWN_TENANT");
  return Principal{.uid = kNoUser,
                   .gid = kNoUser,
                   .tenant = token.tenant,
                   .role = token.role,
                   .credential = absl::StrCat("token:", token.id)};
}

}  // namespace snug::server
