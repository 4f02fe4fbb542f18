// Masks of reads: which fields of an answer somebody wants. No mask, and "*", is all of them.
#ifndef SERVER_API_MASKS_H_
#define SERVER_API_MASKS_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/field_mask.pb.h"
#include "google/protobuf/message.h"

namespace snug::server {

// INVALID_ARGUMENT: a path of `mask`, a field that is called read_mask, names no field of `type`;
// it is said which.
absl::Status CheckReadMask(const google::protobuf::FieldMask& mask,
                           const google::protobuf::Descriptor& type);

bool WantsAll(const google::protobuf::FieldMask& mask);
// Whether anything of that field is wanted.
bool Wants(const google::protobuf::FieldMask& mask, const std::string& field);

// Takes away what is not wanted, of a mask that is right.
void Trim(const google::protobuf::FieldMask& mask, google::protobuf::Message& message);

template <typename Message>
Message Trimmed(Message message, const google::protobuf::FieldMask& mask) {
  Trim(mask, message);
  return message;
}

}  // namespace snug::server

#endif  // SERVER_API_MASKS_H_
