// What of ended jobs, of files that clients have sent and of prepared datasets is kept, as the
// configuration says it.
#ifndef SERVER_RETENTION_LIMITS_H_
#define SERVER_RETENTION_LIMITS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

struct KeepLimits {
  int64_t count = INT64_MAX;
  absl::Duration age = absl::InfiniteDuration();
  int64_t bytes = INT64_MAX;

  bool any() const {
    return count < INT64_MAX || age < absl::InfiniteDuration() || bytes < INT64_MAX;
  }
};

struct RetentionLimits {
  KeepLimits jobs;
  KeepLimits checkpoints;
  KeepLimits logs;
  KeepLimits files;     // That clients have sent: of each owner's.
  KeepLimits datasets;  // Prepared ones.
  absl::Duration between_sweeps = absl::Minutes(10);

  bool any() const {
    return jobs.any() || checkpoints.any() || logs.any() || files.any() || datasets.any();
  }
};

// INVALID_ARGUMENT names the field, its limit and its value.
absl::StatusOr<RetentionLimits> RetentionLimitsOf(const v1::RetentionConfig& config);

}  // namespace snug::server

#endif  // SERVER_RETENTION_LIMITS_H_
