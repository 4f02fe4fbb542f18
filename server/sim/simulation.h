// Jobs, devices and a policy on a virtual clock, from the first arrival to the last end.
//
// Between events all is constant, so nothing is stepped: each job has the work it has left and a
// speed. A job's speed is that of its plan (the seconds of a step under its fastest plan, divided
// by those under the plan it has) times what interference leaves of it; on a part of a device that
// nobody else shares, what its compute allows. A started job loads its model first, holds all its
// bytes a while later, and changes its plan one full step after the order.
//
// Checked at each event, and an error of the simulation: no device holds or has promised more than
// it has, each job that came is in one place, and under a policy that keeps the order the job that
// waits first is placed when those that ran at that time, and those ahead of it, have ended.
#ifndef SERVER_SIM_SIMULATION_H_
#define SERVER_SIM_SIMULATION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sim/policy.h"

namespace snug::server::sim {

struct SimOptions {
  double interference = 1.0;
  int64_t load_us = 20'000'000;  // From a job's start to its first step, whoever starts it.
  int64_t peak_us = 30'000'000;  // From then until it holds all its bytes.
};

struct Outcome {
  int64_t jobs = 0;
  int64_t ended = 0;
  int64_t refused = 0;  // Fit on no device, however empty.
  int64_t squeezes = 0;
  int64_t relaxes = 0;
  int64_t oom_requeues = 0;
  int64_t starved = 0;  // Jobs that waited first beyond the bound; of a policy with no order.
  int64_t events = 0;
  double makespan_s = 0.0;
  double busy_device_s = 0.0;            // Sum over devices of the time with at least one job,
  double job_s = 0.0;                    // and of the time of all their jobs.
  std::vector<double> completion_s;      // Of those that ended, from arrival to end.
  std::vector<double> wait_s;            // Of those, until their last start.
  uint64_t digest = 0xcbf29ce484222325;  // Of all events in order: equal runs have equal ones.
};

class Simulation {
 public:
  Simulation(std::vector<Job> jobs, std::vector<SimDevice> devices, Policy& policy,
             SimOptions options);

  // Once.
  absl::StatusOr<Outcome> Run();

 private:
  enum class Event : uint8_t {
    kArrive,
    kStep,
    kPeak,
    kNewPlan,
    kEnd,
    kStart,
    kOrder,
    kOom,
    kRefuse,
  };

  int64_t NextEvent() const;
  void AdvanceTo(int64_t now_us);
  void Arrive();
  void HappenIn(size_t place);
  void SetSpeeds(Place& place) const;
  absl::Status Decide();
  absl::Status StartJob(const Start& start);
  absl::Status ChangePlan(const Change& change);
  void TakePlan(Attempt& attempt, size_t place);
  void EndJob(const Attempt& attempt, size_t place);
  void Requeue(const Attempt& attempt, size_t place);
  absl::Status Refuse(const std::string& id);
  absl::Status Check();
  absl::Status CheckPlaces() const;
  absl::Status CheckOrder();
  void Note(Event event, const std::string& job, size_t place, int plan);

  std::vector<Job> jobs_;  // By arrival.
  Policy& policy_;
  const SimOptions options_;
  World world_;
  size_t arrived_ = 0;
  std::map<std::string, int64_t> started_us_;
  // The job that has waited first since it did, and what it has to wait for.
  std::string head_;
  std::set<std::string> ahead_of_head_;
  std::set<std::string> starved_;
  Outcome outcome_;
};

}  // namespace snug::server::sim

#endif  // SERVER_SIM_SIMULATION_H_
