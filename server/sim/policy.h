// The ways to share devices that the simulator compares.
#ifndef SERVER_SIM_POLICY_H_
#define SERVER_SIM_POLICY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sim/world.h"

namespace snug::server::sim {

struct Start {
  std::string job;
  size_t place = 0;
  int plan = 0;
  int64_t bytes = 0;  // To reserve.
};

struct Change {
  std::string job;
  size_t place = 0;
  int plan = 0;
  bool at_once = false;  // Else at the job's next step boundary.
};

// In this order: jobs are started, then plans changed.
struct Round {
  std::vector<Start> starts;
  std::vector<Change> changes;
  std::vector<std::string> refused;  // Fit on no device, however empty.
};

class Policy {
 public:
  virtual ~Policy() = default;

  // The devices, as this policy divides them.
  virtual std::vector<SimDevice> Divide(std::vector<SimDevice> devices) const { return devices; }
  // Called after each event.
  virtual Round Decide(const World& world) = 0;
  // Whether what it reserves is all that jobs hold, so that none runs out of memory.
  virtual bool keeps_a_ledger() const { return true; }
  // Whether the job that waits first waits at most for those that ran then (policy.h of place/).
  virtual bool keeps_the_order() const { return true; }
};

struct PolicyOptions {
  double interference = 1.0;  // Its strength, for the policy that knows it.
};

// snug       The daemon's own: packs by plans, squeezes, relaxes (place/).
// exclusive  A device for each job; first come, first served.
// fixed      Each device cut for good, into 4/7, 2/7 and 1/7 of its compute with 4/8, 2/8 and 1/8
//            of its memory, as MIG's profiles are; a job for each slice.
// carma      First come, first served, onto the device with the most memory left, where that is
//            what the job needs by an estimate and at most 80 % of the device is busy. A job that
//            runs out of memory is started again, and its need is known from then on.
// oracle     Knows how long jobs run and how they slow one another: the shortest first, each where
//            the sum of speeds grows most. It may squeeze, at no cost in time. No bound.
absl::StatusOr<std::unique_ptr<Policy>> PolicyNamed(const std::string& name,
                                                    const PolicyOptions& options);
const std::vector<std::string>& PolicyNames();

// The parts of PolicyNamed.
std::unique_ptr<Policy> MakeSnug();
std::unique_ptr<Policy> MakeExclusive();
std::unique_ptr<Policy> MakeFixed();
std::unique_ptr<Policy> MakeCarma();
std::unique_ptr<Policy> MakeOracle(double interference);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_POLICY_H_
