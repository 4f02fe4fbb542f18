#include "server/job/check_labels.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

bool IsKey(absl::string_view key) {
  const auto fits = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '/' ||
           c == '-';
  };
  return !key.empty() && key.size() <= kMaxLabelBytes &&
         absl::ascii_isalnum(static_cast<unsigned char>(key.front())) &&
         std::all_of(key.begin(), key.end(), fits);
}

bool IsValue(absl::string_view value) {
  return value.size() <= kMaxLabelBytes && std::none_of(value.begin(), value.end(), [](char c) {
           return absl::ascii_iscntrl(static_cast<unsigned char>(c));
         });
}

}  // namespace

absl::Status CheckLabels(const std::string& field,
                         const google::protobuf::Map<std::string, std::string>& labels) {
  std::vector<Violation> found;
  if (labels.size() > kMaxLabels)
    found.push_back(
        {field, absl::StrCat(labels.size(), " labels; at most ", kMaxLabels), "BAD_FIELD"});
  for (const auto& [key, value] : labels) {
    if (!IsKey(key))
      found.push_back({absl::StrCat(field, ".", key.substr(0, kMaxLabelBytes)),
                       absl::StrCat("a key is 1 to ", kMaxLabelBytes,
                                    " letters, digits, '.', '_', '/', '-', and begins with a "
                                    "letter or a digit"),
                       "BAD_FIELD"});
    else if (!IsValue(value))
      found.push_back(
          {absl::StrCat(field, ".", key),
           absl::StrCat("a value has at most ", kMaxLabelBytes, " bytes and no control characters"),
           "BAD_FIELD"});
  }
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

}  // namespace snug::server
