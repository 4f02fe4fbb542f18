// Packing without a planner: jobs run as they would alone on a device, by an estimate of their
// bytes, and those that do not fit after all are started again.
#include <algorithm>

#include "server/sim/policy.h"

namespace snug::server::sim {
namespace {

// Of a device; where more is busy no job is added.
constexpr double kMostBusy = 0.8;

class Carma : public Policy {
 public:
  bool keeps_a_ledger() const override { return false; }
  bool keeps_the_order() const override { return false; }

  Round Decide(const World& world) override {
    Round round;
    std::vector<int64_t> free;
    std::vector<double> busy;
    for (const Place& place : world.places) {
      free.push_back(place.device.capacity_bytes - SeenOrBelieved(place));
      busy.push_back(BusyShare(place));
    }
    for (const auto& [key, queued] : world.queue.in_order()) {
      const Job& job = *world.jobs.at(queued.id);
      const int plan = PlanAlone(job, world.places);
      if (plan < 0) {
        round.refused.push_back(job.id);
        continue;
      }
      const int64_t bytes = Believed(job, plan, world);
      const auto most = static_cast<size_t>(Roomiest(free, busy));
      if (busy[most] > kMostBusy || free[most] < std::min(bytes, Capacity(world, most))) break;
      round.starts.push_back({job.id, most, plan, bytes});
      free[most] -= bytes;
      busy[most] += job.utilisation;
    }
    return round;
  }

 private:
  // One that loads its model will be at work soon.
  static double BusyShare(const Place& place) {
    double sum = 0.0;
    for (const Attempt& attempt : place.attempts) sum += attempt.job->utilisation;
    return sum;
  }

  // What has been taken is measured; what is still to be taken is estimated.
  static int64_t SeenOrBelieved(const Place& place) {
    int64_t bytes = 0;
    for (const Attempt& attempt : place.attempts)
      bytes += attempt.peaked ? attempt.held_bytes() : attempt.reserved_bytes;
    return bytes;
  }

  static int64_t Capacity(const World& world, size_t place) {
    return world.places[place].device.capacity_bytes;
  }

  // The one of the most free bytes among those that are not too busy; of none, the first.
  static int Roomiest(const std::vector<int64_t>& free, const std::vector<double>& busy) {
    int best = -1;
    for (size_t i = 0; i < free.size(); ++i)
      if (busy[i] <= kMostBusy && (best < 0 || free[i] > free[static_cast<size_t>(best)]))
        best = static_cast<int>(i);
    return std::max(best, 0);
  }

  // That a user would run who has a device alone: the fastest that fits.
  static int PlanAlone(const Job& job, const std::vector<Place>& places) {
    int64_t largest = 0;
    for (const Place& place : places) largest = std::max(largest, place.device.capacity_bytes);
    return FastestPlanWithin(*job.plans, largest);
  }

  static int64_t Believed(const Job& job, int plan, const World& world) {
    const double held = static_cast<double>(job.plan(plan).bytes) * job.held_share;
    const bool seen = world.oom_failures.contains(job.id);
    return static_cast<int64_t>(seen ? held : held * job.estimate);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeCarma() { return std::make_unique<Carma>(); }

}  // namespace snug::server::sim
