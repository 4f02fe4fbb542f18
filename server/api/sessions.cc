#include "server/api/sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/data/sha256.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

constexpr int kSecretDigits = 64;  // 256 bits.
constexpr size_t kNameDigits = 8;  // Of the hash: what the audit log and the limit of calls name.

}  // namespace

v1::CreateSessionResponse Sessions::Create(Principal who, absl::Time now) {
  v1::CreateSessionResponse response;
  response.set_secret(absl::StrCat(kSessionPrefix, RandomHex(kSecretDigits)));
  const absl::Time expires = now + kSessionLasts;
  response.mutable_expire_time()->set_seconds(absl::ToUnixSeconds(expires));
  std::string hash = Sha256Hex(response.secret());
  who.reads_only = true;
  who.credential = absl::StrCat("session:", hash.substr(0, kNameDigits));
  absl::MutexLock lock(&mutex_);
  std::erase_if(sessions_, [now](const auto& each) { return each.second.expires <= now; });
  if (sessions_.size() >= kMaxSessions)
    sessions_.erase(std::min_element(
        sessions_.begin(), sessions_.end(),
        [](const auto& a, const auto& b) { return a.second.expires < b.second.expires; }));
  sessions_.emplace(std::move(hash), Session{std::move(who), expires});
  return response;
}

std::optional<Principal> Sessions::Find(absl::string_view secret, absl::Time now) const {
  const std::string hash = Sha256Hex(secret);
  absl::MutexLock lock(&mutex_);
  const auto found = sessions_.find(hash);
  if (found == sessions_.end() || found->second.expires <= now) return std::nullopt;
  return found->second.who;
}

}  // namespace snug::server
