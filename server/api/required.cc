#include "server/api/required.h"

#include <vector>

#include "google/api/field_behavior.pb.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

bool IsThere(const google::protobuf::Message& message,
             const google::protobuf::FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

}  // namespace

bool IsRequired(const google::protobuf::FieldDescriptor& field) {
  const auto& options = field.options();
  for (int i = 0; i < options.ExtensionSize(google::api::field_behavior); ++i)
    if (options.GetExtension(google::api::field_behavior, i) == google::api::REQUIRED) return true;
  return false;
}

absl::Status CheckRequired(const google::protobuf::Message& request) {
  std::vector<Violation> found;
  const google::protobuf::Descriptor& type = *request.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i)
    if (IsRequired(*type.field(i)) && !IsThere(request, *type.field(i)))
      found.push_back({type.field(i)->name(), "is needed", "BAD_FIELD"});
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

}  // namespace snug::server
