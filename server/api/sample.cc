#include "server/api/sample.h"

#include <memory>

#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

// A token takes a few milliseconds at least; a reader sees no delay of this size.
constexpr absl::Duration kAnswerPause = absl::Milliseconds(10);

class AnswerReader {
 public:
  using Token = Next<v1::SampleChunk>;

  explicit AnswerReader(std::shared_ptr<AnswerStream> stream) : stream_(std::move(stream)) {}
  ~AnswerReader() { stream_->Cancel(); }
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  absl::StatusOr<Token> operator()() {
    ASSIGN_OR_RETURN(const AnswerStream::Next next, stream_->Take());
    if (next.chunk) return Token{.kind = Token::kMessage, .message = *next.chunk};
    if (next.ended) return Token{};
    return Token{.kind = Token::kWait, .message = {}, .wait = kAnswerPause};
  }

 private:
  const std::shared_ptr<AnswerStream> stream_;
};

}  // namespace

absl::StatusOr<MessageSource<v1::SampleChunk>> AnswerSource(Answering& answering,
                                                            const v1::SampleRequest& request) {
  RETURN_IF_ERROR(CheckSampleRequest(request));
  ASSIGN_OR_RETURN(std::shared_ptr<AnswerStream> stream, answering.Start(request));
  auto reader = std::make_shared<AnswerReader>(std::move(stream));
  return MessageSource<v1::SampleChunk>([reader] { return (*reader)(); });
}

}  // namespace snug::server
