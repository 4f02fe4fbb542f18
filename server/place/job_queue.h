// The jobs that wait for a device, in the order in which they are asked: higher priority first,
// then first come. Pure data.
//
// Jobs with equal plans and an equal budget form a group, of one owner where he has a share: what
// is found out about one of them in a round holds for all.
#ifndef SERVER_PLACE_JOB_QUEUE_H_
#define SERVER_PLACE_JOB_QUEUE_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/place/shared_weights.h"

namespace snug::server {

// How far the daemon knows what the job needs.
enum class Judgement {
  kJudged,   // Its plans are there.
  kAwaited,  // They are being worked out: nobody behind it is placed before that.
  kHeld,     // They cannot be worked out now: it blocks nobody.
};

// What one plan takes of a device while it runs.
struct PlanNeeds {
  PlanNeeds(int64_t bytes, int threads = 1, int64_t host_bytes = 0)
      : bytes(bytes), threads(threads), host_bytes(host_bytes) {}
  auto operator<=>(const PlanNeeds&) const = default;

  int64_t bytes;
  int threads;         // Of a CPU.
  int64_t host_bytes;  // Of the host's memory, beside the device's.
};

struct QueuedJob {
  std::string id;
  int priority = 0;
  int64_t order = 0;                 // Of arrival.
  int64_t not_before_us = 0;         // Wall time; a job that waits for its retry blocks nobody.
  std::string retry_cause;           // Why it was not done the last time; or empty.
  int64_t budget_bytes = INT64_MAX;  // The user's own limit, and his owner's share.
  // Of each device, promised to the owner's jobs together; INT64_MAX: there is none, nor an owner.
  int64_t share_bytes = INT64_MAX;
  std::string owner;
  std::map<std::string, SharedWeights> shared;  // By device, of each of its plans' bytes.
  // By device: those of more threads first, and of equal threads the fastest first.
  std::map<std::string, std::vector<PlanNeeds>> plans;
  Judgement judgement = Judgement::kJudged;
  bool no_steps = false;  // It answers or exports: no job keeps it off (RunningJob::bears).
  int group = 0;          // Given by the queue.
};

class JobQueue {
 public:
  void Put(QueuedJob job);  // Instead of the one of this id, if there is one.
  void Remove(const std::string& id);

  size_t size() const { return jobs_.size(); }
  const QueuedJob* Find(const std::string& id) const;  // Null: it does not wait.

  using Key = std::tuple<int, int64_t, std::string>;  // -priority, order, id.
  const std::map<Key, QueuedJob>& in_order() const { return jobs_; }

 private:
  struct Group {
    int number = 0;
    int jobs = 0;
  };
  using Needs = std::tuple<bool, int64_t, std::string, std::map<std::string, SharedWeights>,
                           std::map<std::string, std::vector<PlanNeeds>>>;

  std::map<Key, QueuedJob> jobs_;
  std::map<std::string, Key> keys_;  // By id.
  std::map<Needs, Group, std::less<>> groups_;
  int next_group_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_PLACE_JOB_QUEUE_H_
