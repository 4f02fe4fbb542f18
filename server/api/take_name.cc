#include "server/api/take_name.h"

namespace snug::server {

absl::Status CheckParent(const std::string& parent, const std::string& tenant) {
  const std::string own = absl::StrCat("tenants/", tenant);
  if (parent.empty() || parent == own) return absl::OkStatus();
  return InvalidRequest(
      {{"parent", absl::StrCat("\"", parent, "\": your tenant is ", own), "BAD_FIELD"}});
}

}  // namespace snug::server
