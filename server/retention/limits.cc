#include "server/retention/limits.h"

#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxUnits = 1'000'000'000;  // Of an age: 90d are 90 of them.
constexpr int kMaxSweepSeconds = 7 * 86400;

absl::Status Bad(const std::string& field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("retention.", field, ": ", what));
}

absl::StatusOr<absl::Duration> AgeOf(const std::string& field, absl::string_view text) {
  const std::map<char, absl::Duration> units = {{'s', absl::Seconds(1)},
                                                {'m', absl::Minutes(1)},
                                                {'h', absl::Hours(1)},
                                                {'d', absl::Hours(24)}};
  const auto unit = units.find(text.back());
  int64_t count = 0;
  const bool number = absl::SimpleAtoi(text.substr(0, text.size() - 1), &count);
  if (unit == units.end() || !number || count < 1 || count > kMaxUnits)
    return Bad(field,
               absl::StrCat("\"", text, "\" is no time: write 30d, 12h, 90m or 45s, at most ",
                            kMaxUnits, " of them"));
  return count * unit->second;
}

absl::StatusOr<KeepLimits> LimitsOf(const std::string& field, const v1::KeepLimits& config) {
  KeepLimits limits;
  if (config.count() < 0)
    return Bad(field + ".count", absl::StrCat(config.count(), " is below 0, which is no limit"));
  if (config.count() > 0) limits.count = config.count();
  if (!config.age().empty()) {
    ASSIGN_OR_RETURN(limits.age, AgeOf(field + ".age", config.age()));
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
