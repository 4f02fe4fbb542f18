#include "proto/snug/duration.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace snug {
namespace {

constexpr int64_t kMaxUnits = 1'000'000'000;

// 0: no unit.
int64_t UnitSeconds(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3600;
    case 'd':
      return 86400;
  }
  return 0;
}

}  // namespace

absl::StatusOr<int64_t> ParseSeconds(absl::string_view text) {
  const int64_t unit = text.empty() ? 0 : UnitSeconds(text.back());
  int64_t count = 0;
  if (unit == 0 || !absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) || count < 1 ||
      count > kMaxUnits)
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is no time: write 30d, 12h, 90m or 45s, at most ", kMaxUnits, " of them"));
  return count * unit;
}

}  // namespace snug
