#include "server/retention/limits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/snug/bytes.h"
#include "proto/snug/duration.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int kMaxSweepSeconds = 7 * 86400;

absl::Status Bad(const std::string& field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("retention.", field, ": ", what));
}

absl::StatusOr<KeepLimits> LimitsOf(const std::string& field, const v1::KeepLimits& config) {
  KeepLimits limits;
  if (config.count() < 0)
    return Bad(field + ".count", absl::StrCat(config.count(), " is below 0, which is no limit"));
  if (config.count() > 0) limits.count = config.count();
  if (!config.age().empty()) {
    const absl::StatusOr<int64_t> seconds = ParseSeconds(config.age());
    if (!seconds.ok()) return Bad(field + ".age", seconds.status().message());
    limits.age = absl::Seconds(*seconds);
  }
  if (!config.bytes().empty()) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(config.bytes());
    if (!bytes.ok()) return Bad(field + ".bytes", bytes.status().message());
    if (*bytes > 0) limits.bytes = *bytes;
  }
  return limits;
}

}  // namespace

absl::StatusOr<RetentionLimits> RetentionLimitsOf(const v1::RetentionConfig& config) {
  RetentionLimits limits;
  ASSIGN_OR_RETURN(limits.jobs, LimitsOf("jobs", config.jobs()));
  ASSIGN_OR_RETURN(limits.checkpoints, LimitsOf("checkpoints", config.checkpoints()));
  ASSIGN_OR_RETURN(limits.logs, LimitsOf("logs", config.logs()));
  ASSIGN_OR_RETURN(limits.files, LimitsOf("files", config.files()));
  ASSIGN_OR_RETURN(limits.datasets, LimitsOf("datasets", config.datasets()));
  const int seconds = config.sweep_seconds();
  if (seconds < 0 || seconds > kMaxSweepSeconds)
    return Bad("sweep_seconds",
               absl::StrCat(seconds, " is outside 0 (the default) to ", kMaxSweepSeconds));
  if (seconds > 0) limits.between_sweeps = absl::Seconds(seconds);
  return limits;
}

}  // namespace snug::server
