#include "server/job/random_id.h"

#include <sys/random.h>

#include <array>
#include <cctype>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

constexpr size_t kMaxJobId = 63;  // RFC 1123 label: the id can be a host or folder name.
constexpr size_t kMaxSlug = 40;   // Leaves room for "-" and the random tail.
constexpr int kTailDigits =
    6;  // 16 million per display name; a collision is refused and drawn again.

bool IsIdCharacter(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c); }

std::string Slug(absl::string_view name) {
  std::string slug;
  for (char c : name) {
    c = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (IsIdCharacter(c)) {
      slug += c;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
    if (slug.size() == kMaxSlug) break;
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  if (slug.empty()) return "ft";
  return absl::ascii_islower(slug.front()) ? slug : absl::StrCat("ft-", slug);
}

}  // namespace

std::string RandomHex(int digits) {
  std::string hex;
  while (static_cast<int>(hex.size()) < digits) {
    uint64_t word = 0;
    if (getrandom(&word, sizeof word, 0) != sizeof word) continue;
    absl::StrAppend(&hex, absl::Hex(word, absl::kZeroPad16));
  }
  hex.resize(digits);
  return hex;
}

std::string RandomUuid() {
  std::string hex = RandomHex(32);
  hex[12] = '4';
  hex[16] = "89ab"[hex[16] & 3];
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

bool IsJobId(absl::string_view id) {
  if (id.empty() || id.size() > kMaxJobId || !absl::ascii_islower(id.front())) return false;
  if (id.back() == '-') return false;
  for (char c : id)
    if (!IsIdCharacter(c) && c != '-') return false;
  return true;
}

bool IsUuid(absl::string_view id) {
  if (id.size() != 36) return false;
  for (size_t i = 0; i < id.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? id[i] != '-' : !absl::ascii_isxdigit(id[i])) return false;
  }
  return true;
}

std::string NewJobId(absl::string_view display_name) {
  return absl::StrCat(Slug(display_name), "-", RandomHex(kTailDigits));
}

}  // namespace snug::server
