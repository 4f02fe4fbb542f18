// What all daemons of a run add up to.
#ifndef TESTS_FAULT_CRASH_TOTALS_H_
#define TESTS_FAULT_CRASH_TOTALS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/fault/crash/known_jobs.h"

namespace snug::crash {

// One life of a daemon, as it was when it was killed.
struct Life {
  bool running = false;         // An attempt had its worker.
  bool unacknowledged = false;  // A submit had been sent, and not been acknowledged.
  std::string killed;           // Whom, where that was no failpoint's doing.
};

struct Summary {
  int64_t cycles = 0;
  int64_t counted = 0;  // Those in which both of Life held.
  int64_t running = 0, unacknowledged = 0;
  absl::Duration took;
  std::map<std::string, int64_t> killed;
  std::map<std::string, int64_t> hits;  // By failpoint.
  std::map<std::string, int64_t> ends;  // Of jobs, by state.
  int64_t jobs = 0;
  int64_t outputs = 0;  // That were compared.
  int64_t lost = 0, doubled = 0, violations = 0;
  std::vector<std::string> what;  // Of these.
};

class Totals {
 public:
  explicit Totals(int64_t wanted) : wanted_(wanted) {}

  // As many cycles as wanted have counted, or something was wrong.
  bool Enough() const;
  // From the first daemon's first cycle on the time counts.
  void Begin();
  // Those beyond what is enough are left out.
  void Add(const Life& life);
  void Blame(const Violation& violation, const std::string& where);
  // Of one daemon, so far.
  void SetHits(int daemon, std::map<std::string, int64_t> hits);
  std::map<std::string, int64_t> Hits() const;
  void AddEnd(const std::string& state);
  void AddJobs(int64_t jobs);
  void AddOutput();
  Summary Sum() const;

 private:
  void PrintProgress() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<std::string, int64_t> SumOfHits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  bool IsEnough() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sum_.counted >= wanted_ || !sum_.what.empty();
  }

  const int64_t wanted_;
  mutable absl::Mutex mutex_;
  Summary sum_ ABSL_GUARDED_BY(mutex_);
  absl::Time began_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  std::map<int, std::map<std::string, int64_t>> hits_ ABSL_GUARDED_BY(mutex_);
};

// Prints all of it as a table. False: something was wrong, too few cycles have counted, or, where
// `each_hit`, a failpoint was hit fewer times.
bool Report(const Summary& summary, int64_t wanted, int64_t each_hit);

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_TOTALS_H_
