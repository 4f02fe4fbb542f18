// What the schema says of a request's fields: those that are REQUIRED have to be there.
#ifndef SERVER_API_REQUIRED_H_
#define SERVER_API_REQUIRED_H_

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace snug::server {

bool IsRequired(const google::protobuf::FieldDescriptor& field);

// INVALID_ARGUMENT names each field of its own that is REQUIRED and absent: empty, 0 or
// UNSPECIFIED. What is wrong inside of a job's spec is told all at once, by its checks.
absl::Status CheckRequired(const google::protobuf::Message& request);

}  // namespace snug::server

#endif  // SERVER_API_REQUIRED_H_
