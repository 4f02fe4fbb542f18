#include "server/api/masks.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/field_mask_util.h"
#include "server/job/errors.h"

namespace snug::server {

using google::protobuf::FieldMask;
using google::protobuf::util::FieldMaskUtil;

bool WantsAll(const FieldMask& mask) {
  return mask.paths().empty() || absl::c_linear_search(mask.paths(), "*");
}

bool Wants(const FieldMask& mask, const std::string& field) {
  return WantsAll(mask) || absl::c_any_of(mask.paths(), [&](const std::string& path) {
           return path == field || absl::StartsWith(path, absl::StrCat(field, "."));
         });
}

absl::Status CheckReadMask(const FieldMask& mask, const google::protobuf::Descriptor& type) {
  for (const std::string& path : mask.paths())
    if (path != "*" && !FieldMaskUtil::GetFieldDescriptors(&type, path, nullptr))
      return InvalidRequest(
          {{"read_mask", absl::StrCat("\"", path, "\" is no field of a ", type.name()),
            "BAD_FIELD"}});
  return absl::OkStatus();
}

void Trim(const FieldMask& mask, google::protobuf::Message& message) {
  if (!WantsAll(mask)) FieldMaskUtil::TrimMessage(mask, &message);
}

}  // namespace snug::server
