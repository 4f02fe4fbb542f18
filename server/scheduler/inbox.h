// The scheduler thread's one way in: whatever comes from outside is a task here, and runs on that
// thread in order of arrival.
#ifndef SERVER_SCHEDULER_INBOX_H_
#define SERVER_SCHEDULER_INBOX_H_

#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace snug::server {

using Task = absl::AnyInvocable<void()>;

// Requests that wait. A commit takes 0.2 ms, so a full inbox is two seconds of work: more would
// only make callers wait longer.
inline constexpr size_t kMaxInboxTasks = 10'000;

class Inbox {
 public:
  // For requests: false when it is full or closed.
  bool TryPost(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // For what must not be lost (results, worker events): waits for room. Dropped when it is closed.
  // Not for the scheduler thread.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // For results of what the receiving thread asked for itself: at once, also when it is full.
  void PostResult(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

  // All that is there; waits up to `timeout` for the first.
  std::deque<Task> Take(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_INBOX_H_
