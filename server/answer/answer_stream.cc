#include "server/answer/answer_stream.h"

#include <utility>

namespace snug::server {

bool AnswerStream::Put(v1::SampleChunk chunk) {
  absl::MutexLock lock(&mutex_);
  const bool taken =
      mutex_.AwaitWithTimeout(absl::Condition(this, &AnswerStream::MayPut), kClientPatience);
  if (!taken || cancelled_) return false;
  chunks_.push_back(std::move(chunk));
  return true;
}

void AnswerStream::End(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (!end_) end_ = std::move(status);
}

bool AnswerStream::Cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

absl::StatusOr<AnswerStream::Next> AnswerStream::Take() {
  absl::MutexLock lock(&mutex_);
  if (!chunks_.empty()) {
    Next next{.chunk = std::move(chunks_.front())};
    chunks_.pop_front();
    return next;
  }
  if (!end_) return Next{};
  if (!end_->ok()) return *end_;
  return Next{.ended = true};
}

void AnswerStream::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
}

}  // namespace snug::server
