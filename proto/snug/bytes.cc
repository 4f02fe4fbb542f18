// Parsing is in whole numbers throughout, so that what is written is what is meant, to the byte.
#include "proto/snug/bytes.h"

#include <cstdlib>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace snug {
namespace {

__extension__ typedef __int128 Wide;

constexpr int kMaxDigits = 19;  // Of an int64; keeps the arithmetic below far from the end of Wide.

struct Unit {
  const char* name;  // In lower case.
  int64_t bytes;
};
constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"kib", int64_t{1} << 10},
    {"mib", int64_t{1} << 20},
    {"gib", int64_t{1} << 30},
    {"tib", int64_t{1} << 40},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
};

absl::Status Bad(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a size in bytes", why,
                                                 "; write for example 12GiB, 500MB or 4096"));
}

// Moves leading digits from `text` to `value`; their number.
int TakeDigits(absl::string_view* text, Wide* value) {
  int digits = 0;
  while (!text->empty() && absl::ascii_isdigit(text->front()) && digits <= kMaxDigits) {
    *value = *value * 10 + (text->front() - '0');
    text->remove_prefix(1);
    ++digits;
  }
  return digits;
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  Wide mantissa = 0;  // The number without its point,
  Wide divisor = 1;   // and ten to the digits after it.
  const int digits = TakeDigits(&rest, &mantissa);
  if (digits == 0) return Bad(text, " (no number)");
  if (digits > kMaxDigits) return Bad(text, " (too large)");
  if (absl::ConsumePrefix(&rest, ".")) {
    Wide fraction = 0;
    const int fraction_digits = TakeDigits(&rest, &fraction);
    if (fraction_digits == 0) return Bad(text, " (no digits after the point)");
    if (fraction_digits > 9) return Bad(text, " (more than 9 digits after the point)");
    for (int i = 0; i < fraction_digits; ++i) divisor *= 10;
    mantissa = mantissa * divisor + fraction;
  }
  const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(rest));
  for (const Unit& unit : kUnits) {
    if (name != unit.name) continue;
    // At most 10^28 * 2^40 < 2^134 would not fit: divide the whole and the rest of it one after the
    // other.
    const Wide whole = mantissa / divisor;
    const Wide bytes = whole * unit.bytes + (mantissa % divisor) * unit.bytes / divisor;
    if (bytes > std::numeric_limits<int64_t>::max()) return Bad(text, " (too large)");
    return static_cast<int64_t>(bytes);
  }
  return Bad(text, absl::StrCat(" (unknown unit \"", absl::StripAsciiWhitespace(rest), "\")"));
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double value = static_cast<double>(bytes);
  // 1023.95 would print as 1024.0 of the smaller unit.
  while (std::abs(value) >= 1023.95 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  const bool whole = bytes % (int64_t{1} << (10 * unit)) == 0;
  return whole ? absl::StrFormat("%.0f %s", value, kNames[unit])
               : absl::StrFormat("%.1f %s", value, kNames[unit]);
}

}  // namespace snug
