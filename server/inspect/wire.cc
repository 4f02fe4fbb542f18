#include "server/inspect/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/shim/descriptor_message.h"

namespace snug::server {
namespace {

constexpr size_t kLengthBytes = 4;

absl::Status SendBytes(int socket, const std::string& bytes) {
  if (FAILS_AT("inspect.send")) return absl::ErrnoToStatus(ENOMEM, "a failed message");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return absl::ErrnoToStatus(errno, "cannot send to the other process");
    done += static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ReceiveBytes(int socket, char* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = recv(socket, bytes + done, size - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot hear from the other process");
    if (got == 0) return absl::UnavailableError("the other process has ended");
    done += static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

uint32_t LengthIn(const char* head) {
  uint32_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    size |= uint32_t{static_cast<unsigned char>(head[i])} << 8 * i;
  return size;
}

absl::Status SendSome(int socket, const std::vector<int>& fds) {
  const char byte = 0;
  if (FAILS_AT("inspect.send_files")) return absl::ErrnoToStatus(ENOMEM, "a failed message");
  if (shim::SendWithDescriptors(socket, &byte, 1, fds) == 1) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "cannot hand on descriptors");
}

absl::Status ReceiveSome(int socket, std::vector<int>& fds) {
  char byte = 0;
  std::vector<int> some;
  if (shim::ReceiveWithDescriptors(socket, &byte, 1, some) < 0)
    return absl::ErrnoToStatus(errno, "cannot take descriptors");
  if (some.empty()) return absl::UnavailableError("no descriptors came");
  fds.insert(fds.end(), some.begin(), some.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status SendMessage(int socket, const google::protobuf::MessageLite& message) {
  const std::string body = message.SerializeAsString();
  if (body.size() > kMaxInspectFrame)
    return absl::InvalidArgumentError(absl::StrCat("a message of ", body.size(), " bytes"));
  std::string frame(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) frame[i] = static_cast<char>(body.size() >> 8 * i);
  return SendBytes(socket, frame + body);
}

absl::Status ReceiveMessage(int socket, google::protobuf::MessageLite& message) {
  char head[kLengthBytes];
  RETURN_IF_ERROR(ReceiveBytes(socket, head, sizeof head));
  const uint32_t size = LengthIn(head);
  if (size > kMaxInspectFrame)
    return absl::InvalidArgumentError(absl::StrCat("a message of ", size, " bytes"));
  std::string body(size, '\0');
  RETURN_IF_ERROR(ReceiveBytes(socket, body.data(), body.size()));
  if (message.ParseFromString(body)) return absl::OkStatus();
  return absl::InvalidArgumentError("a message that does not parse");
}

absl::Status ParseFrame(const std::string& bytes, google::protobuf::MessageLite& message) {
  const bool whole = bytes.size() >= kLengthBytes && bytes.size() <= kMaxInspectFrame &&
                     LengthIn(bytes.data()) == bytes.size() - kLengthBytes;
  if (whole && message.ParseFromString(bytes.substr(kLengthBytes))) return absl::OkStatus();
  return absl::InvalidArgumentError("a message that does not parse");
}

absl::Status SendDescriptors(int socket, const std::vector<int>& fds) {
  for (size_t done = 0; done < fds.size(); done += shim::kMaxDescriptorsAtOnce) {
    const size_t count = std::min(shim::kMaxDescriptorsAtOnce, fds.size() - done);
    const auto first = fds.begin() + static_cast<std::ptrdiff_t>(done);
    RETURN_IF_ERROR(SendSome(socket, {first, first + static_cast<std::ptrdiff_t>(count)}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> ReceiveDescriptors(int socket, size_t count) {
  std::vector<int> fds;
  while (fds.size() < count) RETURN_IF_ERROR(ReceiveSome(socket, fds));
  if (fds.size() == count) return fds;
  return absl::InvalidArgumentError("more descriptors than files");
}

}  // namespace snug::server
