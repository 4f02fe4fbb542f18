// What is known of the jobs of one daemon beside the daemon: what was asked, what was acknowledged,
// and how each has ended; and what must hold of the daemon's word after each start.
//   lost      an acknowledged job is there, unless its deletion was asked for
//   doubled   a request makes one job, however often it is sent
//   final     a job that has ended stays as it ended; one that was deleted stays away
// A job is told by its token, the last word of its display name.
#ifndef TESTS_FAULT_CRASH_KNOWN_JOBS_H_
#define TESTS_FAULT_CRASH_KNOWN_JOBS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/job/states.h"
#include "snug/v1/service.pb.h"

namespace snug::crash {

using server::JobState;

enum class Wrong : uint8_t { kLost, kDoubled, kOther };
struct Violation {
  Wrong kind = Wrong::kOther;
  std::string what;
};

// A job to submit, for the first time or once more.
struct Submit {
  int64_t token = 0;
  v1::CreateJobRequest request;
};

// A change to ask of a job.
enum class Order : uint8_t { kCancel, kPause, kResume, kUpdate, kDelete };
struct Wish {
  int64_t token = 0;
  std::string id;
  Order order = Order::kResume;
};

class KnownJobs {
 public:
  // Whether it is to be a steady one.
  using MakeRequest = std::function<v1::CreateJobRequest(int64_t token, bool steady)>;

  // One that nobody has answered for and nobody is sending, else a new one; nothing where so many
  // jobs live. It is on its way until Answered. Of those that live, two are steady.
  std::optional<Submit> Next(size_t most_live, const MakeRequest& make);
  // The daemon's answer.
  // Null: it was refused, or `lost`: nobody knows.
  void Answered(int64_t token, const v1::Job* made, bool lost);

  // Of those that are there and not steady; nothing: there are none.
  std::optional<Wish> Change(std::mt19937& random);
  // Null: it was refused (the job is as it was), or `lost`: nobody knows.
  void Changed(const Wish& wish, const v1::Job* shown, bool lost);

  // All jobs that the daemon shows, after a start: nothing is under way.
  void Compare(const std::vector<v1::Job>& shown);

  // Jobs that have ended, and whose folders nobody has asked to remove.
  std::vector<std::string> Ended() const;
  // Requests that have been sent and not been acknowledged.
  int64_t Unacknowledged() const;
  int64_t OnTheirWay() const;
  int64_t Live() const;
  int64_t tokens() const;
  std::vector<Violation> TakeViolations();

 private:
  struct Known {
    v1::CreateJobRequest request;
    std::string id;       // Empty: not acknowledged.
    bool steady = false;  // Nobody changes it, so that most lives have an attempt that runs.
    bool on_its_way = false;
    bool sent = false;
    bool delete_asked = false;
    bool deleted = false;
    JobState state = v1::Job::STATE_UNSPECIFIED;  // As last shown; ended, it stays.
  };

  void Blame(Wrong kind, std::string what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(Known& known, const v1::Job& shown) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CompareOne(Known& known, const v1::Job* there) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Lives(const Known& known) {
    return !known.deleted && !server::IsTerminal(known.state);
  }

  mutable absl::Mutex mutex_;
  std::map<int64_t, Known> known_ ABSL_GUARDED_BY(mutex_);  // By token.
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Violation> violations_ ABSL_GUARDED_BY(mutex_);
};

// Of a display name; 0: it has none.
int64_t TokenOf(const std::string& display_name);

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_KNOWN_JOBS_H_
