// Threads for work that takes long, shared out between users: each gets a turn in which the first
// of his that may run does, however many he has waiting. Some threads are kept for small work, so
// that it never waits for large work alone. What takes such a thread for longer than small work may
// is no small work, whatever it was taken for.
#ifndef SERVER_SCHEDULER_FAIR_POOL_H_
#define SERVER_SCHEDULER_FAIR_POOL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "server/scheduler/inbox.h"

namespace snug::server {

struct FairWork {
  std::string user = "";
  // Work of one key runs one after the other: the second finds what the first has made. Empty: no
  // other is like it.
  std::string key = "";
  bool small = false;
  int32_t priority = 0;  // Among the user's own; higher first, then by arrival.
  Task run = nullptr;
  // Of small work, called in place of `run` by a thread that is kept for it; ends by itself before
  // long. False: it is not done. Then it waits for another turn, as large work of its user.
  absl::AnyInvocable<bool()> run_briefly = nullptr;
};

class FairPool {
 public:
  struct Threads {
    int any = 1;                    // Take what comes.
    int small = 0;                  // Take small work alone.
    size_t waiting = SIZE_MAX / 2;  // More is refused; of small work, twice as much.
  };

  explicit FairPool(Threads threads);
  ~FairPool();  // Stops; what has not begun is dropped.

  size_t WaitingOf(const std::string& user) const ABSL_LOCKS_EXCLUDED(mutex_);
  // False when as much waits as may, or after Stop.
  bool Post(FairWork work) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for what runs; what waits is dropped.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Place = std::pair<int64_t, int64_t>;  // Minus the priority, arrival.
  using Queue = std::map<Place, FairWork>;
  struct Queues {
    Queue small, large;
    Queue& First(bool small_only) {
      if (small_only || large.empty()) return small;
      return small.empty() || large.begin()->first < small.begin()->first ? large : small;
    }
  };

  void Loop(bool small_only) ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<FairWork> Take(bool small_only) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<FairWork> TakeOf(Queues& queues, bool small_only)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(FairWork work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: it waits behind its key.
  bool Insert(Place place, FairWork work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const std::string& user) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_waiting_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::map<std::string, Queues> queues_
      ABSL_GUARDED_BY(mutex_);  // By user; of none both are empty.
  // By the key that runs: what waits for its end. However much it is, nobody looks at it until
  // then.
  std::map<std::string, Queue> behind_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;                        // In all of these.
  std::map<std::string, size_t> waiting_of_ ABSL_GUARDED_BY(mutex_);  // By user; none is 0.
  int64_t arrivals_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_user_ ABSL_GUARDED_BY(mutex_);  // Whose turn it was.
  std::set<std::string> running_keys_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_FAIR_POOL_H_
