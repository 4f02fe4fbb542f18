#include "server/job/tokens.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "server/job/names.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

using google::protobuf::util::TimeUtil;

constexpr absl::string_view kPrefix = "snug";  // By which scanners for secrets find one.
constexpr int kIdDigits = 12;
constexpr int kSecretDigits = 64;  // 256 bits.
constexpr int64_t kLongestSeconds = int64_t{90} * 24 * 3600;
constexpr size_t kMaxTokens = 10'000;  // That were ever given out: a list of 1 MB.

absl::Status Unauthenticated(absl::string_view message, absl::string_view reason) {
  return WithReason(absl::UnauthenticatedError(message), reason);
}

absl::Status NotAToken() {
  return Unauthenticated("no token of this daemon's came with the call", "BAD_TOKEN");
}

absl::Status CheckCreate(const v1::CreateTokenRequest& request) {
  std::vector<Violation> found;
  if (!IsJobId(request.tenant())) found.push_back({"tenant", "names no tenant", "BAD_FIELD"});
  if (request.role() == v1::Token::ROLE_UNSPECIFIED || !v1::Token::Role_IsValid(request.role()))
    found.push_back({"role", "must be USER, VIEWER, AUDITOR or OPERATOR", "BAD_FIELD"});
  if (request.valid_seconds() < 0 || request.valid_seconds() > kLongestSeconds)
    found.push_back({"valid_seconds",
                     absl::StrCat(request.valid_seconds(), " is not between 1 and ",
                                  kLongestSeconds, ", which is 90 days"),
                     "BAD_FIELD"});
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

v1::Token Shown(const TokenRecord& record) {
  v1::Token token;
  token.set_id(record.id);
  token.set_name(TokenName(record.tenant, record.id));
  token.set_tenant(record.tenant);
  token.set_role(record.role);
  *token.mutable_create_time() = TimeUtil::MicrosecondsToTimestamp(record.created_us);
  *token.mutable_expire_time() = TimeUtil::MicrosecondsToTimestamp(record.expires_us);
  if (record.revoked_us > 0)
    *token.mutable_revoke_time() = TimeUtil::MicrosecondsToTimestamp(record.revoked_us);
  return token;
}

TokenRecord ReadToken(const Row& row) {
  return {.id = row.Text(0),
          .tenant = row.Text(1),
          .role = static_cast<v1::Token::Role>(row.Int(2)),
          .sha256 = row.Text(3),
          .created_us = row.Int(4),
          .expires_us = row.Int(5),
          .revoked_us = row.Int(6)};
}

// In a time that does not depend on where they differ.
bool SameHash(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

absl::Status StandingOf(const TokenRecord& token, int64_t now_us) {
  if (token.revoked_us > 0)
    return Unauthenticated(absl::StrCat("token ", token.id, " was revoked"), "TOKEN_REVOKED");
  if (now_us >= token.expires_us)
    return Unauthenticated(absl::StrCat("token ", token.id, " has expired"), "TOKEN_EXPIRED");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::Load(JobStore& store) {
  std::unique_ptr<Tokens> tokens(new Tokens(store));
  std::map<std::string, TokenRecord, std::less<>> found;
  RETURN_IF_ERROR(store.Read([&](Database& database) {
    return database.Query(
        "SELECT id, tenant, role, sha256, created_us, expires_us, revoked_us FROM tokens",
        [&](const Row& row) {
          TokenRecord token = ReadToken(row);
          found.emplace(token.id, std::move(token));
          return absl::OkStatus();
        });
  }));
  absl::MutexLock lock(&tokens->mutex_);
  tokens->tokens_ = std::move(found);
  return tokens;
}

absl::StatusOr<v1::CreateTokenResponse> Tokens::Create(const v1::CreateTokenRequest& request,
                                                       int64_t now_us) {
  RETURN_IF_ERROR(CheckCreate(request));
  const int64_t seconds = request.valid_seconds() == 0 ? kLongestSeconds : request.valid_seconds();
  TokenRecord token{.id = RandomHex(kIdDigits),
                    .tenant = request.tenant(),
                    .role = request.role(),
                    .created_us = now_us,
                    .expires_us = now_us + seconds * 1'000'000};
  v1::CreateTokenResponse response;
  response.set_secret(absl::StrCat(kPrefix, "_", token.id, "_", RandomHex(kSecretDigits)));
  token.sha256 = Sha256Hex(response.secret());
  *response.mutable_token() = Shown(token);
  absl::MutexLock lock(&mutex_);
  if (tokens_.size() >= kMaxTokens) return QueueFull("tokens", kMaxTokens);
  if (tokens_.contains(token.id)) return absl::UnavailableError("the id is taken; try again");
  RETURN_IF_ERROR(store_.Commit({.token = token}, Urgency::kRefusable));
  tokens_.emplace(token.id, std::move(token));
  return response;
}

std::vector<v1::Token> Tokens::List() const {
  std::vector<TokenRecord> all;
  {
    absl::ReaderMutexLock lock(&mutex_);
    for (const auto& [id, token] : tokens_) all.push_back(token);
  }
  std::sort(all.begin(), all.end(), [](const TokenRecord& a, const TokenRecord& b) {
    return std::pair(a.created_us, a.id) < std::pair(b.created_us, b.id);
  });
  std::vector<v1::Token> shown;
  for (const TokenRecord& token : all) shown.push_back(Shown(token));
  return shown;
}

absl::StatusOr<v1::Token> Tokens::Revoke(const std::string& id, int64_t now_us) {
  const std::optional<ResourceName> name = ParseName(id);
  const bool named = name && name->kind == ResourceName::kToken;
  absl::MutexLock lock(&mutex_);
  const auto found = tokens_.find(named ? name->id : id);
  if (found == tokens_.end() || (named && found->second.tenant != name->tenant))
    return WithReason(absl::NotFoundError(
                          absl::StrCat("no token \"", id, "\"; `snug token list` shows them all")),
                      "TOKEN_NOT_FOUND");
  if (found->second.revoked_us > 0) return Shown(found->second);
  TokenRecord revoked = found->second;
  revoked.revoked_us = now_us;
  RETURN_IF_ERROR(store_.Commit({.token = revoked}));
  found->second = revoked;
  return Shown(revoked);
}

absl::Status Tokens::CheckStanding(absl::string_view id, int64_t now_us) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? NotAToken() : StandingOf(found->second, now_us);
}

absl::StatusOr<TokenRecord> Tokens::Check(absl::string_view secret, int64_t now_us) const {
  const std::vector<absl::string_view> parts = absl::StrSplit(secret, '_');
  if (parts.size() != 3 || parts[0] != kPrefix || parts[2].size() != kSecretDigits)
    return NotAToken();
  const std::string sha256 = Sha256Hex(secret);
  TokenRecord token;
  {
    absl::ReaderMutexLock lock(&mutex_);
    const auto found = tokens_.find(parts[1]);
    if (found != tokens_.end()) token = found->second;
  }
  if (!SameHash(token.sha256, sha256)) return NotAToken();
  RETURN_IF_ERROR(StandingOf(token, now_us));
  return token;
}

}  // namespace snug::server
