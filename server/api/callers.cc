#include "server/api/callers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr absl::string_view kToken = "token:";

absl::Status Unknown(absl::string_view message, absl::string_view reason) {
  return WithReason(absl::UnauthenticatedError(message), reason);
}

}  // namespace

double RateLimit::LevelOf(const Bucket& bucket, absl::Duration now) const {
  const double filled = absl::ToDoubleSeconds(now - bucket.filled) * rate_.per_second;
  return std::min<double>(rate_.burst, bucket.calls + filled);
}

size_t RateLimit::size() const {
  absl::MutexLock lock(&mutex_);
  return buckets_.size();
}

bool RateLimit::Take(const std::string& name, absl::Duration now) {
  absl::MutexLock lock(&mutex_);
  if (buckets_.size() >= forget_at_) {
    std::erase_if(buckets_,
                  [&](const auto& each) { return LevelOf(each.second, now) == rate_.burst; });
    forget_at_ = std::max<size_t>(64, 2 * buckets_.size());
  }
  const auto [found, is_new] =
      buckets_.try_emplace(name, Bucket{.calls = static_cast<double>(rate_.burst), .filled = now});
  Bucket& bucket = found->second;
  bucket = {.calls = LevelOf(bucket, now), .filled = now};
  if (bucket.calls < 1) return false;
  bucket.calls -= 1;
  return true;
}

absl::StatusOr<Principal> Callers::OfSecret(absl::string_view secret) {
  return WithinRate(FindSecret(secret));
}

absl::StatusOr<Principal> Callers::OfToken(absl::string_view token) {
  return WithinRate(FindToken(token));
}

absl::StatusOr<Principal> Callers::OfCertificate(const CertificateNames& names) {
  std::optional<Principal> who = tenants_.OfCertificate(names);
  if (!who) return Unknown("this certificate is of no tenant's", "UNKNOWN_CERTIFICATE");
  return WithinRate(*std::move(who));
}

absl::StatusOr<Principal> Callers::OfUser(Principal user) {
  if (user.trusted && tenants_.empty()) return user;
  return WithinRate(std::move(user));
}

// Callers are told apart by what they show, the machine's users by their numbers.
absl::Status Callers::StillLetIn(const Principal& who) const {
  absl::string_view id = who.credential;
  return absl::ConsumePrefix(&id, kToken) ? tokens_.CheckStanding(id, WallMicros())
                                          : absl::OkStatus();
}

absl::StatusOr<Principal> Callers::WithinRate(absl::StatusOr<Principal> who) {
  if (!who.ok()) return who;
  const std::string name = who->credential.empty() ? who->name() : who->credential;
  RateLimit& rate = who->trusted ? own_rate_ : rate_;
  if (!rate.Take(name, SinceBoot())) return TooFast(name, rate.per_second());
  return who;
}

absl::Status Callers::CheckSecret(absl::string_view secret) const {
  return FindSecret(secret).status();
}

absl::StatusOr<Principal> Callers::FindSecret(absl::string_view secret) const {
  std::optional<Principal> who = sessions_.Find(secret, absl::Now());
  return who ? *std::move(who) : FindToken(secret);
}

absl::StatusOr<Principal> Callers::FindToken(absl::string_view secret) const {
  ASSIGN_OR_RETURN(const TokenRecord token, tokens_.Check(secret, WallMicros()));
  if (!tenants_.Has(token.tenant))
    return Unknown(absl::StrCat("token ", token.id, " is of a tenant that there is not any more"),
                   "UNKNOWN_TENANT");
  return Principal{.uid = kNoUser,
                   .gid = kNoUser,
                   .tenant = token.tenant,
                   .role = token.role,
                   .credential = absl::StrCat(kToken, token.id)};
}

}  // namespace snug::server
