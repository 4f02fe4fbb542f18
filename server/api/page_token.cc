#include "server/api/page_token.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"

namespace snug::server {

std::string PageTokens::Sealed(int64_t last_order, const std::string& filter) const {
  const std::string text = absl::StrCat(last_order, ".", filter);
  return absl::StrCat(last_order, ".", Sha256Hex(absl::StrCat(key_, "|", text, "|", key_)));
}

std::string PageTokens::Make(int64_t last_order, const std::string& filter) const {
  return absl::WebSafeBase64Escape(Sealed(last_order, filter));
}

absl::StatusOr<int64_t> PageTokens::Read(const std::string& token,
                                         const std::string& filter) const {
  if (token.empty()) return 0;
  std::string text;
  int64_t order = 0;
  if (absl::WebSafeBase64Unescape(token, &text)) {
    const std::vector<std::string> parts = absl::StrSplit(text, '.');
    if (absl::SimpleAtoi(parts[0], &order) && Sealed(order, filter) == text) return order;
  }
  return InvalidRequest(
      {{"page_token", "is not of this list: start again without one", "BAD_PAGE_TOKEN"}});
}

}  // namespace snug::server
