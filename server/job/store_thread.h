// The one thread that touches the database. Changes that wait together go to the disk together: one
// transaction, one fsync (group commit), each change a savepoint of its own.
//
// Whoever asked is told when the transaction is on the disk, never before. What reads runs on the
// same thread, after the batch that it waited with.
#ifndef SERVER_JOB_STORE_THREAD_H_
#define SERVER_JOB_STORE_THREAD_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/job/database.h"

namespace snug::server {

// Who may take the last space on the disk.
enum class Urgency { kRefusable, kMustLand };

// Changes of one transaction: at 256 an fsync is a hundredth of a change's cost already.
inline constexpr size_t kMaxBatch = 256;
// After a batch of at least so many changes others are likely to come: the next batch waits for
// them, up to that time, unless somebody is blocked on it or the thread has been idle for as long.
inline constexpr size_t kBusyBatch = 8;
inline constexpr absl::Duration kWaitForMore = absl::Milliseconds(1);

class StoreThread {
 public:
  struct Task {
    std::function<absl::Status(Database&)> work;
    std::function<void(absl::Status)> done;  // Called on the thread; must not block.
    Urgency urgency = Urgency::kMustLand;
    bool reads = false;   // Outside of the transaction.
    bool blocks = false;  // Somebody waits for it: set by PostAndWait.
  };
  // Puts the tasks' changes on the disk and gives one status for each. Called on the thread.
  using CommitBatch = std::function<std::vector<absl::Status>(const std::vector<Task*>&)>;

  StoreThread(Database& database, CommitBatch commit);
  ~StoreThread();  // After all that was posted.

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Not on the thread itself.
  absl::Status PostAndWait(Task task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Task> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  void Run(std::vector<Task>& tasks);

  Database& database_;
  const CommitBatch commit_;
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int blocking_ ABSL_GUARDED_BY(mutex_) = 0;  // Of `tasks_`.
  size_t last_changes_ = 0;                   // Of the last batch. The thread's own.
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_JOB_STORE_THREAD_H_
