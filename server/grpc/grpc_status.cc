#include "server/grpc/grpc_status.h"

#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "server/job/errors.h"

namespace snug::server {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::Status whole =
      status.GetPayload("type.googleapis.com/google.rpc.ErrorInfo").has_value()
          ? status
          : WithReason(status, ReasonOf(status));
  google::rpc::Status details;
  details.set_code(static_cast<int>(whole.code()));
  details.set_message(std::string(whole.message()));
  whole.ForEachPayload([&](absl::string_view type_url, const absl::Cord& payload) {
    google::protobuf::Any& any = *details.add_details();
    any.set_type_url(std::string(type_url));
    any.set_value(std::string(payload));
  });
  return grpc::Status(static_cast<grpc::StatusCode>(whole.code()), std::string(whole.message()),
                      details.SerializeAsString());
}

absl::Status Decode(const grpc::ByteBuffer& bytes, size_t max_bytes,
                    google::protobuf::MessageLite& message) {
  if (bytes.Length() > max_bytes) return RequestTooLarge(bytes.Length(), max_bytes);
  std::vector<grpc::Slice> slices;
  std::string text;
  if (bytes.Dump(&slices).ok())
    for (const grpc::Slice& slice : slices)
      text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  if (message.ParseFromString(text)) return absl::OkStatus();
  return InvalidRequest(
      {{"", absl::StrCat("the request is no ", message.GetTypeName()), "UNDECODABLE_REQUEST"}});
}

grpc::ByteBuffer Encode(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace snug::server
