// Threads for what takes long or touches the disk: checks of model files, hashing, preparing,
// chunks of downloads.
#ifndef SERVER_SCHEDULER_TASK_POOL_H_
#define SERVER_SCHEDULER_TASK_POOL_H_

#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/scheduler/inbox.h"

namespace snug::server {

class TaskPool {
 public:
  explicit TaskPool(int threads);
  ~TaskPool();  // Stops; what has not begun is dropped.

  // False when kMaxInboxTasks wait already, or after Stop.
  bool Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for the tasks that run; those that wait are dropped.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_TASK_POOL_H_
