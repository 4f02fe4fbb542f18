// Page tokens of ListJobs: opaque to clients, bound to the filter they were made for, and valid
// while this daemon runs.
#ifndef SERVER_API_PAGE_TOKEN_H_
#define SERVER_API_PAGE_TOKEN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/job/random_id.h"

namespace snug::server {

class PageTokens {
 public:
  std::string Make(int64_t last_order, const std::string& filter) const;
  // INVALID_ARGUMENT for a token that this object did not make for this filter. Empty: from the
  // start, 0.
  absl::StatusOr<int64_t> Read(const std::string& token, const std::string& filter) const;

 private:
  std::string Sealed(int64_t last_order, const std::string& filter) const;
  const std::string key_ = RandomHex(32);
};

}  // namespace snug::server

#endif  // SERVER_API_PAGE_TOKEN_H_
