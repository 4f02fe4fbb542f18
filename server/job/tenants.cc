#include "server/job/tenants.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

absl::Status Wrong(const std::string& field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

// 0 where nothing is said.
absl::StatusOr<int64_t> BytesOf(const std::string& text, const std::string& field) {
  if (text.empty()) return 0;
  const absl::StatusOr<int64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return Wrong(field, bytes.status().message());
  if (*bytes <= 0) return Wrong(field, "0 bytes are too few");
  return *bytes;
}

absl::StatusOr<Quota> QuotaFrom(const v1::TenantQuota& config, const std::string& field) {
  Quota quota{.live_jobs = config.live_jobs(), .max_steps = config.max_steps()};
  if (quota.live_jobs < 0) return Wrong(field + ".live_jobs", "cannot be negative");
  if (quota.max_steps < 0) return Wrong(field + ".max_steps", "cannot be negative");
  ASSIGN_OR_RETURN(quota.device_bytes, BytesOf(config.device_bytes(), field + ".device_bytes"));
  ASSIGN_OR_RETURN(quota.stored_bytes, BytesOf(config.stored_bytes(), field + ".stored_bytes"));
  return quota;
}

}  // namespace

absl::StatusOr<Tenants> Tenants::FromConfig(const v1::DaemonConfig& config) {
  Tenants tenants;
  for (int i = 0; i < config.tenants_size(); ++i)
    RETURN_IF_ERROR(tenants.Add(config.tenants(i), absl::StrCat("tenants[", i, "]")));
  return tenants;
}

absl::Status Tenants::Add(const v1::TenantConfig& config, const std::string& field) {
  const std::string& name = config.name();
  if (!IsJobId(name)) return Wrong(field + ".name", "must be [a-z]([a-z0-9-]{0,61}[a-z0-9])?");
  const bool of_socket = name == kDefaultTenant;
  if (of_socket && config.roots_size() + config.certificates_size() > 0)
    return Wrong(field + ".name",
                 "\"default\" is the tenant of the unix socket's users, of whom a quota alone can "
                 "be said here");
  ASSIGN_OR_RETURN(const Quota quota, QuotaFrom(config.quota(), field + ".quota"));
  if (!quotas_.emplace(name, quota).second)
    return Wrong(field + ".name", absl::StrCat("there is another tenant ", name));
  if (of_socket) return absl::OkStatus();
  std::vector<std::string>& roots = roots_[name];
  for (int i = 0; i < config.roots_size(); ++i) {
    if (!std::filesystem::path(config.roots(i)).is_absolute())
      return Wrong(absl::StrCat(field, ".roots[", i, "]"), "must be an absolute path");
    roots.push_back(config.roots(i));
  }
  for (int i = 0; i < config.certificates_size(); ++i)
    RETURN_IF_ERROR(AddCertificate(config.certificates(i), name,
                                   absl::StrCat(field, ".certificates[", i, "]")));
  return absl::OkStatus();
}

absl::Status Tenants::AddCertificate(const v1::CertificateConfig& config, const std::string& tenant,
                                     const std::string& field) {
  if (config.uri().empty() == config.subject().empty())
    return Wrong(field, "needs a uri or a subject, and not both");
  if (config.role() == v1::Token::ROLE_UNSPECIFIED)
    return Wrong(field + ".role", "is missing: user, viewer, auditor or operator");
  const bool by_uri = !config.uri().empty();
  const std::string& name = by_uri ? config.uri() : config.subject();
  const Principal principal{.uid = kNoUser,
                            .gid = kNoUser,
                            .tenant = tenant,
                            .role = config.role(),
                            .credential = absl::StrCat("cert:", name)};
  if (!(by_uri ? by_uri_ : by_subject_).emplace(name, principal).second)
    return Wrong(field, absl::StrCat(name, " is given twice"));
  return absl::OkStatus();
}

Quota Tenants::QuotaOf(absl::string_view tenant) const {
  const auto found = quotas_.find(tenant);
  return found == quotas_.end() ? Quota{} : found->second;
}

std::optional<Principal> Tenants::OfCertificate(const CertificateNames& names) const {
  if (names.uris.size() > 1) return std::nullopt;
  const bool by_uri = !names.uris.empty();
  const std::map<std::string, Principal>& known = by_uri ? by_uri_ : by_subject_;
  const auto found = known.find(by_uri ? names.uris.front() : names.subject);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace snug::server
