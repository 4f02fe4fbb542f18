// The memory that processes of snug-prepare may take together, in equal shares: each process has
// one while it runs, whether it prepares a dataset, shows a preview, reads a first row or makes ids
// of prompts. Shares are given in the order in which they were asked for, so nobody waits for more
// than those who came before.
#ifndef SERVER_DATA_MEMORY_SHARES_H_
#define SERVER_DATA_MEMORY_SHARES_H_

#include <atomic>
#include <cstdint>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace snug::server {

class MemoryShares {
 public:
  explicit MemoryShares(int count) : count_(count) {}

  // Shares that are out stay out.
  void SetCount(int count) ABSL_LOCKS_EXCLUDED(mutex_);

  // Waits for a share until then, by SinceBoot(). CANCELLED once `cancelled`, which may be null;
  // RESOURCE_EXHAUSTED: there was none in time.
  absl::Status Take(const std::atomic<bool>* cancelled, absl::Duration until)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void GiveBack() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status WaitFor(int64_t ticket, const std::atomic<bool>* cancelled, absl::Duration until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_);
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t tickets_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<int64_t> waiting_ ABSL_GUARDED_BY(mutex_);  // Their tickets; the least is next.
};

}  // namespace snug::server

#endif  // SERVER_DATA_MEMORY_SHARES_H_
