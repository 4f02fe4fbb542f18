// The state of a simulation at one moment, as policies see it. A policy changes nothing: it says
// what is to be done (policy.h), and the simulation does it (simulation.h).
#ifndef SERVER_SIM_WORLD_H_
#define SERVER_SIM_WORLD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/place/job_queue.h"
#include "server/place/policy.h"
#include "server/sim/job.h"

namespace snug::server::sim {

// A job on a device, from its placement to its end.
struct Attempt {
  const Job* job = nullptr;
  JobQueue::Key key;
  int plan = 0;
  int next_plan = -1;  // That it goes to at its next step boundary; -1: none.
  int64_t next_plan_at = 0;
  int64_t reserved_bytes = 0;  // While a change is under way, those of the larger plan.
  int64_t loads_until = 0;     // Its model; then it steps.
  int64_t peaks_at = 0;        // From then on it holds all that its plan needs.
  bool steps = false;
  bool peaked = false;
  double left_us = 0.0;  // Of Job::work_us.
  double speed = 0.0;    // Work per time.
  int64_t end_us = INT64_MAX;

  int64_t held_bytes() const;  // Once it has peaked.
};

struct Place {
  SimDevice device;
  std::vector<Attempt> attempts;  // By time of placement.
  int64_t since_us = 0;           // What the attempts have left is of this moment.

  int64_t ReservedBytes() const;
  int64_t HeldBytes() const;   // By those that have peaked.
  double Utilisation() const;  // Of those that step.
};

struct World {
  int64_t now_us = 0;
  JobQueue queue;
  std::map<std::string, const Job*> jobs;   // By id: those that have come and not ended.
  std::map<std::string, int> oom_failures;  // By id.
  std::vector<Place> places;

  // As the daemon's policy sees devices.
  std::vector<DeviceState> DeviceStates() const;
};

// A queued job as the daemon's queue has it: of the same plans on each device.
QueuedJob QueuedAs(const Job& job, const std::vector<Place>& places);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_WORLD_H_
