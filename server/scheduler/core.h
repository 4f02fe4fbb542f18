// What the parts of the scheduler share: the jobs that have not ended, what is promised to them,
// where changes are stored and shown. The parts reach each other through it. All of it is the
// scheduler thread's, but for what is safe for any: settings, store, index, metrics, waiting,
// inbox, pool.
#ifndef SERVER_SCHEDULER_CORE_H_
#define SERVER_SCHEDULER_CORE_H_

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/job/job_store.h"
#include "server/metrics/metrics.h"
#include "server/place/ledger.h"
#include "server/scheduler/admission.h"
#include "server/scheduler/attempts.h"
#include "server/scheduler/closing.h"
#include "server/scheduler/device_board.h"
#include "server/scheduler/entry.h"
#include "server/scheduler/in_hand.h"
#include "server/scheduler/job_step.h"
#include "server/scheduler/readying.h"
#include "server/scheduler/settings.h"
#include "server/scheduler/task_pool.h"
#include "server/scheduler/tenant_use.h"
#include "server/scheduler/waiting_room.h"

namespace snug::server {

struct SchedulerCore {
  SchedulerCore(SchedulerSettings settings, JobStore& store, JobIndex& index, Preparer& preparer,
                Metrics& metrics);

  // Null: there is none, or it has ended.
  Entry* Find(const std::string& key);
  bool IsNamedByComing(const v1::Job& job) const;
  // Calls `act` for each entry that has an attempt.
  template <typename Act>
  void EachAttended(const Act& act) {
    for (const std::string& key : attended)
      if (Entry* entry = Find(key); entry != nullptr && entry->attempt != nullptr) act(*entry);
  }

  // One step of a job: stored first, then shown and acted upon. Gives the state that it is in then;
  // the entry of one that has ended is gone. An error leaves the job as it was.
  absl::StatusOr<JobState> Apply(Entry& entry, const JobEvent& event);
  // Its halves, for steps of several jobs that are stored together (Readying). Other tasks run in
  // between, but none that changes these jobs: Apply refuses it.
  absl::StatusOr<JobStep> Decide(const Entry& entry, const JobEvent& event) const;
  JobState OnStored(Entry& entry, JobStep step);
  void SaveProgress(Entry& entry);
  void Show(Entry& entry);

  // From the other threads: the task runs on the scheduler's, unless that is at its end.
  void Post(Task task);
  // Likewise, of what a user asks for: an error says that it will not run.
  absl::Status TryPost(Task task);

  SchedulerSettings settings;  // Not changed after the start.
  JobStore& store;
  JobIndex& index;
  Metrics& metrics;
  Ledger ledger;
  TenantUse tenant_use;
  // By their keys: jobs that have not ended; those with an attempt, and some that had one.
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
  std::set<std::string> attended;
  std::map<std::string, DrainRecord> drained;  // By the device's id.
  // By the same: since a job has left it in vain for another one's sake (displacements.h).
  std::map<std::string, absl::Duration> nobody_leaves_until;
  const std::shared_ptr<WaitingRoom> waiting = std::make_shared<WaitingRoom>();
  bool needs_round = true;  // What it decides by has changed since the last one.
  // New jobs on their way to the disk, whose replies are owed: what others each of them names.
  std::unordered_map<const NewJob*, std::vector<std::string>> coming;
  std::atomic<bool> draining{false}, stopping{false};  // For any thread.
  InHand in_hand;                                      // For any thread.
  Inbox inbox;
  TaskPool pool{2};  // Quick: planning, checkpoints, folders that go.

  DeviceBoard board;
  Readying readying;
  Admission admission;
  Attempts attempts;
  Closing closing;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CORE_H_
