// What a job needs before it can be placed, and how far it is on its way there.
#ifndef SERVER_SCHEDULER_READINESS_H_
#define SERVER_SCHEDULER_READINESS_H_

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "server/data/prepare.h"
#include "server/job/check_job.h"
#include "server/job/records.h"
#include "server/scheduler/plan_cache.h"

namespace snug::server {

// Prepared and planned. Jobs that differ in nothing but their names share one, which has the name
// of one of them.
struct ReadyJob {
  CheckedJob checked;
  PreparedFolders folders;
  v1::DatasetSummary summary;
  SharedPlans plans;
};
using SharedReady = std::shared_ptr<const ReadyJob>;

// One of four states:
//
//   kAwaited --Begin--> kUnderWay --Finish--> kReady
//                        |     ^
//                       Hold  Begin, once its time has come
//                        v     |
//                        kHeld-+                       Reset leads from any back to kAwaited.
//
// Times are by SinceBoot().
class Readiness {
 public:
  enum class State {
    kAwaited,   // Nothing is being done about it.
    kUnderWay,  // Slow work is, or its result is on its way into the store.
    kHeld,      // It could not be done for a reason that may pass: until a time.
    kReady,
  };
  // Of one run of the slow work: true once nobody waits for that any more.
  using Abandoned = std::shared_ptr<const std::atomic<bool>>;

  Readiness() = default;
  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;
  ~Readiness() { Reset(); }

  State state() const { return state_; }
  bool IsHeld(absl::Duration now) const { return state_ == State::kHeld && now < again_; }
  // Work on it may begin.
  bool IsDue(absl::Duration now) const;
  // Of one that is held: when it may.
  absl::Duration due() const { return again_; }
  // That run's result is what is waited for.
  bool Awaits(const Abandoned& run) const { return state_ == State::kUnderWay && run == run_; }

  // From kAwaited or kHeld.
  Abandoned Begin();
  // For so long: the longer the more often in a row.
  absl::Duration Hold(absl::Duration now);
  // Since it was first held in a row; zero: it is not now.
  absl::Duration HeldFor(absl::Duration now) const;
  // In a few moments, by no fault of the job's: it does not count as held.
  void TryAgain(absl::Duration now);
  // There is no room for it now: as before Begin, but that a held one may begin at once.
  void Withdraw();
  // Also from kAwaited, of a job whose plans an earlier life of the daemon has stored.
  void Finish(SharedReady job, std::optional<CheckpointRecord> resume = {});
  void GoOnFrom(std::optional<CheckpointRecord> resume) { resume_ = std::move(resume); }
  // What is under way is for nothing, what was ready is forgotten.
  void Reset();

  // Null unless it is kReady.
  const ReadyJob* job() const { return job_.get(); }
  // The checkpoint that its next attempt goes on from; nothing: it begins anew.
  const std::optional<CheckpointRecord>& resume() const { return resume_; }

 private:
  State state_ = State::kAwaited;
  std::shared_ptr<std::atomic<bool>> run_;  // While it is under way.
  int held_ = 0;                            // Times in a row.
  absl::Duration held_since_, again_;
  SharedReady job_;
  std::optional<CheckpointRecord> resume_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_READINESS_H_
