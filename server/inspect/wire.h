// Messages and descriptors over a socket pair.
//   frame = length (4 bytes, little-endian), message
//   descriptors = one byte for each shim::kMaxDescriptorsAtOnce of them, which carries them
//   (SCM_RIGHTS)
#ifndef SERVER_INSPECT_WIRE_H_
#define SERVER_INSPECT_WIRE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"

namespace snug::server {

// A spec has 256 KiB at most; 2,100 paths of a model's files add 2 MiB.
inline constexpr uint32_t kMaxInspectFrame = 8 << 20;

absl::Status SendMessage(int socket, const google::protobuf::MessageLite& message);
absl::Status ReceiveMessage(int socket, google::protobuf::MessageLite& message);

// The one frame that `bytes` are.
absl::Status ParseFrame(const std::string& bytes, google::protobuf::MessageLite& message);

// The receiver owns what it gets. After an error there is nothing to do but to end.
absl::Status SendDescriptors(int socket, const std::vector<int>& fds);
absl::StatusOr<std::vector<int>> ReceiveDescriptors(int socket, size_t count);

}  // namespace snug::server

#endif  // SERVER_INSPECT_WIRE_H_
