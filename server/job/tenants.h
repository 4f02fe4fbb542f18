// Who is let in over TLS, as the daemon's configuration has it: tenants, what each may use, and
// whose certificates are of them.
#ifndef SERVER_JOB_TENANTS_H_
#define SERVER_JOB_TENANTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/job/principal.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// Of one tenant; 0: no limit.
struct Quota {
  int64_t live_jobs = 0;     // That have not ended.
  int64_t device_bytes = 0;  // Of each device, promised to its jobs together.
  int64_t max_steps = 0;     // Of a job.
  int64_t stored_bytes = 0;  // On the disk, of its files and of what its jobs have left.
};

// What a certificate that the TLS handshake has checked says of its owner.
struct CertificateNames {
  std::vector<std::string> uris;  // Among its subject's alternative names.
  std::string subject;            // As RFC 2253 has it.
};

class Tenants {
 public:
  Tenants() = default;
  // INVALID_ARGUMENT with the setting that is wrong.
  static absl::StatusOr<Tenants> FromConfig(const v1::DaemonConfig& config);

  // Of those that are let in over TLS.
  bool empty() const { return roots_.empty(); }
  bool Has(const std::string& tenant) const { return roots_.contains(tenant); }
  // No limits for one that there is not.
  Quota QuotaOf(absl::string_view tenant) const;
  const std::map<std::string, std::vector<std::string>>& roots() const { return roots_; }
  // One with a URI goes by that alone: a subject is what its owner wished to be called. Several
  // URIs are nobody's.
  std::optional<Principal> OfCertificate(const CertificateNames& names) const;

 private:
  absl::Status Add(const v1::TenantConfig& config, const std::string& field);
  absl::Status AddCertificate(const v1::CertificateConfig& config, const std::string& tenant,
                              const std::string& field);

  std::map<std::string, Quota, std::less<>> quotas_;       // Also of the unix socket's users, each.
  std::map<std::string, std::vector<std::string>> roots_;  // Of every tenant.
  std::map<std::string, Principal> by_uri_, by_subject_;
};

}  // namespace snug::server

#endif  // SERVER_JOB_TENANTS_H_
