// The one thread that changes anything: it takes what came in, moves jobs and attempts through
// their states, decides who runs next, and looks after live attempts.
//
// Every move of a job is a step of job_step.h, committed before it is shown or acted upon. Every
// action on the world is derived from a committed row. A tick compares locks, links and clocks with
// the rows, so that a lost message or a restart changes nothing but the delay. Slow work goes to
// the pools.
//
// A job's way through the parts (core.h): creation, readying, admission, attempts, closing. What is
// decided on the way is decided by pure functions: the policy (place/), CareFor, StepJob.
#ifndef SERVER_SCHEDULER_SCHEDULER_H_
#define SERVER_SCHEDULER_SCHEDULER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/scheduler/core.h"
#include "server/scheduler/creation.h"
#include "snug/v1/service.pb.h"

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
  void Pause(std::string key, Reply reply);
  void Resume(std::string key, Reply reply);  // Of a paused job.
  void Squeeze(v1::SqueezeJobRequest request, Reply reply);
  void Relax(v1::RelaxJobRequest request, Reply reply);
  void Update(v1::UpdateJobRequest request, Reply reply);
  void Delete(std::string key, Reply reply);  // Of an ended job; replies with it as it was.

  // Refuses all changes from now on; returns when what was accepted is stored. Workers stay.
  void Drain();

  // For the parts that others than the scheduler make: Drains, Lender, Removal.
  SchedulerCore& core() { return core_; }

 private:
  Scheduler(SchedulerSettings settings, JobStore& store, JobIndex& index, Preparer& preparer,
            Metrics& metrics);
  absl::Status Load();
  void LoadEntries(StoredState& state);
  void Loop();
  void Tick();
  void TellWaiting();
  void Ask(std::function<absl::StatusOr<v1::Job>()> act, Reply reply);

  SchedulerCore core_;
  Creation creation_{core_};
  absl::Duration last_tick_, next_tick_, next_telling_, last_maintained_;  // By SinceBoot().
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_SCHEDULER_H_
