// Other plans for running attempts: on an operator's word, to make room for a job that waits, to
// use what nobody waits for, and where a step does not fit.
//
// A change is an order to the worker and its answer. The order is stored before it is sent, and
// from then until the answer is stored the larger of both plans is reserved; a daemon that is
// started in between finds the order with the job, and tells the worker once more. So at each
// moment the reservation covers what the worker may hold. The worker goes to the plan at its next
// step boundary. Which plans jobs should have is decided in place/rebalance.h.
#ifndef SERVER_SCHEDULER_PLAN_CHANGES_H_
#define SERVER_SCHEDULER_PLAN_CHANGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/place/squeeze.h"
#include "server/scheduler/core.h"

namespace snug::server {

// A part of the scheduler: on its thread, over its state.
class PlanChanger {
 public:
  explicit PlanChanger(SchedulerCore& core) : core_(core) {}

  absl::StatusOr<v1::Job> Squeeze(const v1::SqueezeJobRequest& request);
  absl::StatusOr<v1::Job> Relax(const v1::RelaxJobRequest& request);

  // `head`: the job that waits first; empty: none does.
  void AfterRound(const std::string& head);

  // To an order, or with Hello: then it may be the answer to an order before the last one.
  void OnAnswer(Entry& entry, const v1::WorkerEvent::PlanChanged& answer);
  // Its step did not fit: it is ordered to a smaller plan, or told that there is none.
  void OnShortage(Entry& entry, const v1::WorkerEvent::Shortage& shortage);

 private:
  struct Choice {
    SqueezableJob job;            // The plan in force first.
    std::vector<v1::Plan> plans;  // Those of its options.
  };

  absl::StatusOr<Entry*> Find(const std::string& key, const char* what) const;
  absl::Status CheckChangeable(const Entry& entry, const char* what) const;
  int64_t MostOfShare(const Entry& entry) const;
  // `record`: what the job's is, or will be.
  Choice ChoiceOf(const Entry& entry, const JobRecord& record) const;
  std::vector<Choice> ChoicesOn(const DeviceState& device) const;
  static std::vector<SqueezableJob> JobsOf(const std::vector<Choice>& choices);
  SqueezableJob AsNewcomer(const Entry& newcomer, const DeviceState& device) const;
  absl::Status OrderSmaller(Entry& entry);
  void MakeRoomFor(const Entry& newcomer);
  void RelaxAll();
  // `newcomer`: that they make room for; null: there is room.
  void OrderAll(const std::vector<PlanMove>& moves, const std::vector<Choice>& choices,
                const Entry* newcomer);
  static PlanOrdered OrderOf(const Choice& choice, int plan, std::string reason);
  absl::Status Order(Entry& entry, const PlanOrdered& order);

  SchedulerCore& core_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_PLAN_CHANGES_H_
