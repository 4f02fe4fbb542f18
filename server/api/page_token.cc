#include "server/api/page_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

constexpr size_t kSealDigits = 64;

}  // namespace

// The seal, and the place behind it.
std::string PageTokens::Sealed(absl::string_view place, absl::string_view filter) const {
  // With its length: no place and filter are another place and filter in a row.
  const std::string text = absl::StrCat(place.size(), ".", place, ".", filter);
  return absl::StrCat(Sha256Hex(absl::StrCat(key_, "|", text, "|", key_)), place);
}

std::string PageTokens::Make(absl::string_view place, absl::string_view filter) const {
  return absl::WebSafeBase64Escape(Sealed(place, filter));
}

absl::StatusOr<std::string> PageTokens::Read(absl::string_view token,
                                             absl::string_view filter) const {
  if (token.empty()) return std::string();
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text) && text.size() >= kSealDigits) {
    std::string place = text.substr(kSealDigits);
    if (Sealed(place, filter) == text) return place;
  }
  return InvalidRequest(
      {{"page_token", "is not of this list: start again without one", "BAD_PAGE_TOKEN"}});
}

}  // namespace snug::server
