// The one thread that changes anything: it takes what came in, moves jobs and attempts through
// their states, decides who runs next, and looks after live attempts.
//
// Every change is committed before it is shown or acted upon, and every action on the world is
// derived from a committed row. A tick compares locks, links and clocks with the rows, so that a
// lost message or a restart changes nothing but the delay. Slow work goes to the pools.
#ifndef SERVER_SCHEDULER_SCHEDULER_H_
#define SERVER_SCHEDULER_SCHEDULER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "server/job/job_store.h"
#include "server/metrics/metrics.h"
#include "server/place/ledger.h"
#include "server/scheduler/conclusion.h"
#include "server/scheduler/entry.h"
#include "server/scheduler/gpu_looks.h"
#include "server/scheduler/in_hand.h"
#include "server/scheduler/settings.h"
#include "server/scheduler/stored_plans.h"
#include "server/scheduler/task_pool.h"
#include "server/scheduler/tenant_use.h"
#include "server/scheduler/timetable.h"
#include "server/scheduler/unready.h"
#include "server/scheduler/waiting_room.h"

namespace snug::server {

class Scheduler {
 public:
  using Reply = std::function<void(absl::StatusOr<v1::Job>)>;
  // Loads the store, opens the link for workers, goes on with what the daemon's earlier life left.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Start(SchedulerSettings settings,
                                                          JobStore& store, JobIndex& index,
                                                          Preparer& preparer, Metrics& metrics);
  ~Scheduler();
  // Replies come on the scheduler thread, after the commit.
  void Create(CreateOrder order, Reply reply);
  void Cancel(v1::CancelJobRequest request, Reply reply);
  void Pause(std::string id, Reply reply);
  void Resume(std::string id, Reply reply);  // Of a paused job.
  void Squeeze(v1::SqueezeJobRequest request, Reply reply);
  void Relax(v1::RelaxJobRequest request, Reply reply);
  void Update(v1::UpdateJobRequest request, Reply reply);
  void Delete(std::string id, Reply reply);  // Of an ended job; replies with it as it was.
  // Refuses all changes from now on; returns when what was accepted is stored. Workers stay.
  void Drain();

 private:
  friend class JobChanger;   // What users change of jobs that there are.
  friend class PlanChanger;  // Other plans for running attempts.
  friend class Drains;       // Devices that nothing new is placed on.
  friend class Removal;      // What ended jobs have left.
  friend class Lender;       // Promises to those who are no jobs.
  using ConnectionId = LinkServer::ConnectionId;
  Scheduler(SchedulerSettings settings, JobStore& store, JobIndex& index, Preparer& preparer,
            Metrics& metrics);
  // scheduler.cc: the loop, storing and showing.
  absl::Status Load();
  void LoadEntries(StoredState& state);
  void Loop(), Tick(), GetSomeReady();
  void TellWaiting(), Post(Task task);
  absl::Status Save(Entry& entry, JobRecord changed, Change change, Urgency urgency);
  void OnSaved(Entry& entry, JobRecord changed, const Change& change);
  absl::Status Move(Entry& entry, JobState to, std::string reason, Change change);
  void Show(Entry&entry), SaveProgress(Entry&entry);
  void Drop(const std::string& id);
  Entry* Find(const std::string& id);
  // devices.cc: devices, as they are and as they are shown.
  void ShowDevices(), LookAtGpus();
  void ShowPlace(Entry& entry);
  std::vector<DeviceState> DeviceStates() const;
  std::string TroubleOf(const Device& device) const;
  void OnGpusSeen(const GpuLooks::Uses& uses);
  bool AwaitsLook() const;
  void NoteProcessBytes(Entry& entry);
  // requests.cc: what users ask for, until a job is queued.
  void DoCreate(CreateOrder order, const Reply& reply, int draws_left);
  void OnCreated(const std::shared_ptr<NewJob>& job, CreateOrder order, const Reply& reply);
  void Ask(std::function<absl::StatusOr<v1::Job>()> act, Reply reply);
  void AwaitReady(Entry& entry);
  Unready::Answer GetReadyIfDue(const std::string& id);
  void GetReady(Entry& entry);
  void OnReady(std::vector<ReadyResult> results);
  bool Hold(Entry& entry, const absl::Status& why);
  void StartOver(Entry& entry, const absl::Status& why);
  absl::Status FailJob(Entry& entry, v1::Error error);
  // placement.cc: from queued to a started attempt.
  void Judge(Entry& entry);
  void Enqueue(const Entry& entry);
  void Schedule();
  void RefuseJob(Entry& entry);
  void ScheduleAgain(Entry& entry, const absl::Status& why);
  absl::Status Admit(Entry& entry, const Placement& placement);
  void Launch(Entry& entry);
  // attempts.cc: looking after live attempts, and their messages.
  void LookAfter(Entry& entry);
  void ShowUnreachable(Entry& entry, absl::Duration silent);
  void OnEvent(ConnectionId link, v1::WorkerEvent event);
  void OnClosed(ConnectionId link, const absl::Status& why);
  void OnHello(ConnectionId link, const v1::WorkerEvent::Hello& hello);
  void OnStep(Entry& entry, const v1::WorkerEvent::Step& step);
  void OnCheckpoint(Entry& entry, const v1::WorkerEvent::Checkpoint& checkpoint);
  void Count(Entry& entry, const v1::Progress& now);
  void OnBadMessage(Entry& entry, absl::string_view what);
  absl::Status BecomeLive(Entry& entry, const v1::WorkerEvent::Hello& hello);
  void Refuse(ConnectionId link, std::string reason);
  void TellToStop(const Entry& entry);
  // closing.cc: what an attempt left behind, and what follows.
  void BeginClosing(Entry& entry);
  void OnClosing(const std::string& id, int epoch, absl::StatusOr<ClosedAttempt> closed);
  absl::Status FinishClosing(Entry& entry, const ClosedAttempt& closed);
  SchedulerSettings settings_;  // Changed by the constructor alone.
  JobStore& store_;
  JobIndex& index_;
  Preparer& preparer_;
  Metrics& metrics_;
  Ledger ledger_;
  std::map<std::string, DrainRecord> drained_;             // By the device's id.
  std::map<std::string, std::unique_ptr<Entry>> entries_;  // Jobs that have not ended.
  std::map<ConnectionId, std::string> links_;              // Welcomed connections -> job.
  int64_t next_order_ = 1, storing_ = 0;       // The latter: new jobs on their way to the disk.
  bool changed_ = true, gpus_silent_ = false;  // For scheduling, since the last round; as shown.
  Timetable times_;
  GpuLooks looks_;
  InHand in_hand_;
  std::atomic<bool> draining_{false}, stopping_{false};
  std::set<std::string> attended_;       // Jobs with an attempt, and perhaps some that had one.
  Unready unready_;                      // Of which some may need nothing any more.
  bool pools_full_ = false;              // Since the last tick.
  std::vector<ReadyResult> made_ready_;  // Since the last look; they are stored together.
  const std::shared_ptr<WaitingRoom> waiting_ = std::make_shared<WaitingRoom>();
  TenantUse tenant_use_{settings_.tenants};
  StoredPlans stored_plans_;
  Inbox inbox_;
  std::unique_ptr<LinkServer> link_;
  TaskPool pool_{2}, gpu_pool_{1}, closing_pool_{2};  // Planning; the driver; ended attempts.
  FairPool prepares_;  // As many at a time as their memory limits allow.
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_SCHEDULER_H_
