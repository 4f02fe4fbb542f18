// What a scheduler could do that knew everything but took no job back: no bound, a yardstick.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "server/place/rebalance.h"
#include "server/sim/interference.h"
#include "server/sim/policy.h"

namespace snug::server::sim {
namespace {

// Of those that wait, the shortest so many are tried in a round.
constexpr size_t kMostTried = 64;
// Of speed: less is not worth a start.
constexpr double kLeastGain = 0.02;

// What of a device the oracle weighs.
struct Load {
  int64_t free_bytes = 0;
  int jobs = 0;
  double utilisation = 0.0;
  double plan_speeds = 0.0;  // Sum over its jobs, were there no others.
};

class Oracle : public Policy {
 public:
  explicit Oracle(double interference) : interference_(interference) {}
  bool keeps_the_order() const override { return false; }

  Round Decide(const World& world) override {
    std::vector<Load> loads;
    for (const Place& place : world.places) loads.push_back(LoadOf(place));
    Round round;
    bool left_over = false;
    for (const Job* job : ShortestFirst(world, round)) {
      if (PlaceBest(*job, loads, round)) continue;
      left_over = true;
      if (round.starts.empty() && round.changes.empty()) SqueezeFor(*job, world, round);
    }
    if (!left_over && round.starts.empty()) Relax(world, round);
    return round;
  }

 private:
  static double SpeedOf(const Job& job, int plan) {
    return job.plan(0).seconds / job.plan(plan).seconds;
  }

  static Load LoadOf(const Place& place) {
    Load load{.free_bytes = place.device.capacity_bytes - place.ReservedBytes(),
              .jobs = static_cast<int>(place.attempts.size())};
    for (const Attempt& attempt : place.attempts) {
      load.utilisation += attempt.job->utilisation;
      load.plan_speeds += SpeedOf(*attempt.job, attempt.plan);
    }
    return load;
  }

  static std::vector<const Job*> ShortestFirst(const World& world, Round& round) {
    std::vector<const Job*> jobs;
    for (const auto& [key, queued] : world.queue.in_order()) {
      const Job* job = world.jobs.at(queued.id);
      if (CouldEverRun(*job, world.places))
        jobs.push_back(job);
      else
        round.refused.push_back(job->id);
    }
    const auto shorter = [](const Job* a, const Job* b) {
      return std::pair(a->work_us, a->id) < std::pair(b->work_us, b->id);
    };
    const size_t tried = std::min(kMostTried, jobs.size());
    std::partial_sort(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(tried), jobs.end(),
                      shorter);
    jobs.resize(tried);
    return jobs;
  }

  static bool CouldEverRun(const Job& job, const std::vector<Place>& places) {
    return std::any_of(places.begin(), places.end(), [&](const Place& place) {
      return FastestPlanWithin(*job.plans, place.device.capacity_bytes) >= 0;
    });
  }

  double Speeds(const Load& load) const {
    return load.plan_speeds * SpeedBeside(load.jobs, load.utilisation, interference_);
  }

  static Load With(const Job& job, int plan, Load load) {
    load.free_bytes -= job.plan(plan).bytes;
    load.jobs += 1;
    load.utilisation += job.utilisation;
    load.plan_speeds += SpeedOf(job, plan);
    return load;
  }

  bool PlaceBest(const Job& job, std::vector<Load>& loads, Round& round) const {
    double most = kLeastGain;
    std::optional<Start> best;
    for (size_t i = 0; i < loads.size(); ++i) {
      const int plan = FastestPlanWithin(*job.plans, loads[i].free_bytes);
      if (plan < 0 || loads[i].jobs >= kMaxJobsPerDevice) continue;
      const double gain = Speeds(With(job, plan, loads[i])) - Speeds(loads[i]);
      if (gain <= most) continue;
      most = gain;
      best = Start{job.id, i, plan, job.plan(plan).bytes};
    }
    if (!best) return false;
    loads[best->place] = With(job, best->plan, loads[best->place]);
    round.starts.push_back(*std::move(best));
    return true;
  }

  static std::vector<SqueezableJob> ChoicesIn(const Place& place) {
    std::vector<SqueezableJob> choices;
    for (const Attempt& attempt : place.attempts)
      if (attempt.steps)
        choices.push_back(
            {.job = attempt.job->id, .plans = *attempt.job->plans, .current = attempt.plan});
    return choices;
  }

  // Only where the devices gain by it with all that it is slowed down by. It starts in the next
  // round.
  void SqueezeFor(const Job& job, const World& world, Round& round) const {
    std::vector<Neighbourhood> neighbourhoods;
    const std::vector<DeviceState> states = world.DeviceStates();
    for (size_t i = 0; i < states.size(); ++i) {
      const Load load = LoadOf(world.places[i]);
      const bool gains = Speeds(With(job, 0, load)) > Speeds(load) + kLeastGain;
      neighbourhoods.push_back({states[i], {.job = job.id, .plans = *job.plans}, {}});
      if (gains) neighbourhoods.back().neighbours = ChoicesIn(world.places[i]);
    }
    const std::optional<SqueezeThere> best = BestSqueeze(neighbourhoods);
    if (!best) return;
    for (const PlanMove& move : best->made.moves)
      round.changes.push_back({move.job, best->where, move.plan, /*at_once=*/true});
  }

  static void Relax(const World& world, Round& round) {
    const std::vector<DeviceState> states = world.DeviceStates();
    for (size_t i = 0; i < states.size(); ++i)
      for (const PlanMove& move : Relaxations(states[i], ChoicesIn(world.places[i])))
        round.changes.push_back({move.job, i, move.plan, /*at_once=*/true});
  }

  const double interference_;
};

}  // namespace

std::unique_ptr<Policy> MakeOracle(double interference) {
  return std::make_unique<Oracle>(interference);
}

}  // namespace snug::server::sim
