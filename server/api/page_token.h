// Page tokens of lists: opaque to clients, bound to the list and the filter they were made for, and
// valid while this daemon runs.
#ifndef SERVER_API_PAGE_TOKEN_H_
#define SERVER_API_PAGE_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/job/random_id.h"

namespace snug::server {

class PageTokens {
 public:
  // `place`: where the page has ended, in whatever way the list says it.
  std::string Make(absl::string_view place, absl::string_view filter) const;
  // The place. INVALID_ARGUMENT for a token that this object did not make for this filter. Empty:
  // from the start, "".
  absl::StatusOr<std::string> Read(absl::string_view token, absl::string_view filter) const;

 private:
  std::string Sealed(absl::string_view place, absl::string_view filter) const;
  const std::string key_ = RandomHex(32);
};

}  // namespace snug::server

#endif  // SERVER_API_PAGE_TOKEN_H_
