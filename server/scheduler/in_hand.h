// Which jobs the daemon is at work on in its own process, kept in a file so that its next life
// knows what it was doing when it ended. A job that was in hand at two ends is not taken in hand
// again: it may be what ends the daemon. Work that is done for several jobs has all of them in
// hand.
// How often it was in hand at an end is forgotten once the work on it has come to a result.
//
// A line of the file is "N working JOB" while the job is in hand, and "N waiting JOB" once a life
// has ended with it in hand: N ends so far. All lines are of the same length, and one that is free
// is blank. Nothing is flushed to the disk: this is about the process, not the machine.
#ifndef SERVER_SCHEDULER_IN_HAND_H_
#define SERVER_SCHEDULER_IN_HAND_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace snug::server {

inline constexpr int kMaxEndsInHand = 2;

// Safe for any thread.
class InHand {
 public:
  // Reads what the daemon's earlier lives left, and counts their ends.
  explicit InHand(const std::string& path);
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;
  ~InHand();

  // The job has been in hand at kMaxEndsInHand ends.
  bool IsSuspect(const std::string& job) const ABSL_LOCKS_EXCLUDED(mutex_);

  // The jobs are in hand while this lives.
  class Hold {
   public:
    Hold(InHand& in_hand, std::vector<std::string> jobs);
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();

   private:
    InHand& in_hand_;
    const std::vector<std::string> jobs_;
  };

  // The work on the job has come to a result, or the job has been parked: what was counted of it is
  // forgotten.
  void Forget(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Job {
    int ends = 0;
    int holds = 0;
    size_t line = 0;
  };
  using Jobs = std::map<std::string, Job>;
  using Lines = std::map<size_t, std::string>;  // Of the file, by their places.
  void Take(const std::vector<std::string>& jobs) ABSL_LOCKS_EXCLUDED(mutex_);
  void Free(const std::vector<std::string>& jobs) ABSL_LOCKS_EXCLUDED(mutex_);
  Jobs::iterator Enter(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the file is to say of it; a blank line, where nothing is to be said.
  void Tell(Jobs::iterator job, Lines& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(const Lines& lines) const;

  int fd_ = -1;
  mutable absl::Mutex mutex_;
  Jobs jobs_ ABSL_GUARDED_BY(mutex_);  // In hand, now or at the end of an earlier life.
  std::vector<size_t> free_ ABSL_GUARDED_BY(mutex_);
  size_t lines_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_IN_HAND_H_
