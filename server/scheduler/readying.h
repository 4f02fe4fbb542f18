// From a new job to one that can be placed: its files checked, its data prepared, its plans worked
// out. The slow work is done on pools; what it brings back is stored together.
#ifndef SERVER_SCHEDULER_READYING_H_
#define SERVER_SCHEDULER_READYING_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/data/prepare.h"
#include "server/scheduler/entry.h"
#include "server/scheduler/fair_pool.h"
#include "server/scheduler/like_jobs.h"
#include "server/scheduler/settings.h"
#include "server/scheduler/stored_plans.h"
#include "server/scheduler/unready.h"

namespace snug::server {

struct SchedulerCore;
struct ReadyWork;
struct ReadyStep;
struct ReadySteps;

// What was made of jobs that are alike.
struct ReadyResult {
  ReadyJob job;
  std::optional<CheckpointRecord> resume;  // One that goes on behind a checkpoint is alone.
};
struct ReadyGroup {
  std::vector<LikeJobs::Member> jobs;
  absl::StatusOr<ReadyResult> result;
};

// It is prepared within seconds, as far as the sizes and names of its files tell that its owner can
// see.
bool IsSmallDataset(const v1::JobSpec& spec, const Reach& reach = {});

class Readying {
 public:
  Readying(SchedulerCore& core, const SchedulerSettings& settings, Preparer& preparer);

  // The job is to be made ready when its turn comes.
  void Await(const Entry& entry);
  // The job has ended.
  void Forget(const Entry& entry);
  // What an earlier life of the daemon stored of it; null where it does not hold any more.
  SharedReady Restore(const PlansRecord& packed, const JobRecord& record) {
    return stored_plans_.Unpack(packed, record);
  }
  // To be called before any event that users may cause reaches the job. If its step from unready to
  // ready is on its way into the store (Entry::storing), waits for it and finishes all that are
  // stored with it. Entries may be gone afterwards: hold none across the call.
  void Settle(const std::string& key);
  // Some are ready, and not yet in the store.
  bool HasToStore() const { return storing_ != nullptr || !made_ready_.empty(); }
  void StoreReady();
  // Nothing more is restored.
  void EndRestoring() { stored_plans_.ForgetUnpacked(); }
  // Takes in what has been made ready; begins with those whose turn it is, unless it did just now.
  void GoOn();
  // When it may begin with more, where there may be some.
  absl::Duration NextBeginning() const;
  // A pool that was full may have room by now, and a held job's time may have come.
  void OnTick();
  void Stop() { prepares_.Stop(); }

 private:
  void GetSomeReady();
  Unready::Answer GetReadyIfDue(const std::string& key);
  void GetReady(Entry& entry);
  // On a pool. False: it was not done by then, which is said by SinceBoot(), and is to begin anew.
  bool MakeAllReady(ReadyWork& work, absl::Duration until);
  std::function<void(const std::string& progress)> Saying(const LikeJobs::Member& member);
  void StoreSteps(std::vector<ReadyGroup> groups);
  void DecideAll(ReadyGroup& group, std::vector<ReadyStep>& steps);
  void OnStored(std::shared_ptr<ReadySteps> all);
  bool Hold(Entry& entry, const absl::Status& why);
  void GiveUp(Entry& entry, const absl::Status& why);
  void StartOver(Entry& entry, const absl::Status& why);

  SchedulerCore& core_;
  Preparer& preparer_;
  Unready unready_;                      // Of which some may need nothing any more.
  bool pools_full_ = false;              // Since the last tick.
  bool look_at_unready_ = false;         // Something may have changed since the last look.
  absl::Duration last_beginning_;        // By SinceBoot().
  std::vector<ReadyGroup> made_ready_;   // Since the last look.
  std::shared_ptr<ReadySteps> storing_;  // On their way into the store; null: none.
  LikeJobs like_jobs_;
  StoredPlans stored_plans_;
  FairPool prepares_;  // As many at a time as their memory limits allow.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_READYING_H_
