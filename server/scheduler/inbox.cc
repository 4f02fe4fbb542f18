#include "server/scheduler/inbox.h"

#include <utility>

namespace snug::server {

bool Inbox::TryPost(Task task) {
  absl::MutexLock lock(&mutex_);
  if (closed_ || tasks_.size() >= kMaxInboxTasks) return false;
  tasks_.push_back(std::move(task));
  return true;
}

void Inbox::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  const auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || tasks_.size() < kMaxInboxTasks;
  };
  mutex_.Await(absl::Condition(&room));
  if (!closed_) tasks_.push_back(std::move(task));
}

void Inbox::PostResult(Task task) {
  absl::MutexLock lock(&mutex_);
  if (!closed_) tasks_.push_back(std::move(task));
}

std::deque<Task> Inbox::Take(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || !tasks_.empty();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&something), timeout);
  return std::exchange(tasks_, {});
}

void Inbox::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

}  // namespace snug::server
