#include "worker/link/answer_link.h"

#include <google/protobuf/io/coded_stream.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "snug/v1/sample.pb.h"

namespace snug::link {
namespace {

absl::Status NobodyListens() { return absl::CancelledError("nobody listens to the answers"); }

}  // namespace

absl::StatusOr<std::unique_ptr<AnswerLink>> AnswerLink::Dial(const train::AttemptOptions& attempt) {
  const std::string& path = attempt.answers->socket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return absl::InvalidArgumentError(absl::StrCat(path, ": too long for a socket"));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  auto link = std::make_unique<AnswerLink>(fd);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return NobodyListens();
  RETURN_IF_ERROR(link->Send(attempt.nonce));
  return link;
}

AnswerLink::~AnswerLink() { close(socket_); }

absl::Status AnswerLink::Send(const std::string& body) {
  using google::protobuf::io::CodedOutputStream;
  const auto size = static_cast<uint32_t>(body.size());
  std::string bytes(CodedOutputStream::VarintSize32(size), '\0');
  CodedOutputStream::WriteVarint32ToArray(size, reinterpret_cast<uint8_t*>(bytes.data()));
  bytes += body;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t now = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return NobodyListens();
    sent += static_cast<size_t>(now);
  }
  return absl::OkStatus();
}

absl::Status AnswerLink::Piece(int prompt, const std::string& text,
                               std::span<const int32_t> tokens) {
  v1::SampleChunk chunk;
  chunk.mutable_piece()->set_prompt(prompt);
  chunk.mutable_piece()->set_text(text);
  chunk.mutable_piece()->mutable_tokens()->Add(tokens.begin(), tokens.end());
  return Send(chunk.SerializeAsString());
}

absl::Status AnswerLink::PromptEnded(int prompt, bool stopped) {
  using Ended = v1::SampleChunk::PromptEnded;
  v1::SampleChunk chunk;
  chunk.mutable_prompt_ended()->set_prompt(prompt);
  chunk.mutable_prompt_ended()->set_reason(stopped ? Ended::REASON_STOP : Ended::REASON_LENGTH);
  return Send(chunk.SerializeAsString());
}

absl::Status AnswerLink::Ended(int64_t measured_peak_bytes) {
  v1::SampleChunk chunk;
  chunk.mutable_ended()->set_measured_peak_bytes(measured_peak_bytes);
  return Send(chunk.SerializeAsString());
}

absl::Status AnswerLink::CheckListener() const {
  pollfd asked = {socket_, POLLIN | POLLRDHUP, 0};
  return poll(&asked, 1, 0) > 0 ? NobodyListens() : absl::OkStatus();
}

}  // namespace snug::link
