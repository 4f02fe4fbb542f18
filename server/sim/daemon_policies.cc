// The policies that place jobs with the daemon's own functions: its own, and those that forbid it
// to share.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/place/rebalance.h"
#include "server/sim/policy.h"

namespace snug::server::sim {
namespace {

// What the daemon's placement says, in places of the world.
Round PlacedBy(const Decision& decision, const World& world) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < world.places.size(); ++i) places[world.places[i].device.name] = i;
  Round round;
  for (const Placement& placement : decision.placements)
    round.starts.push_back(
        {placement.job, places.at(placement.device), placement.plan, placement.bytes});
  round.refused = decision.infeasible;
  return round;
}

class Alone : public Policy {
 public:
  std::vector<SimDevice> Divide(std::vector<SimDevice> devices) const override {
    for (SimDevice& device : devices) device.one_job = true;
    return devices;
  }
  Round Decide(const World& world) override {
    return PlacedBy(server::Decide(world.queue, world.DeviceStates(), world.now_us), world);
  }
};

class Fixed : public Alone {
 public:
  std::vector<SimDevice> Divide(std::vector<SimDevice> devices) const override {
    std::vector<SimDevice> slices;
    for (const SimDevice& device : devices)
      for (const int sevenths : {4, 2, 1})
        slices.push_back({.name = absl::StrCat(device.name, "/", sevenths),
                          .whole = device.whole,
                          .capacity_bytes = device.capacity_bytes / 8 * sevenths,
                          .compute = device.compute * sevenths / 7.0,
                          .one_job = true});
    return slices;
  }
};

class Snug : public Policy {
 public:
  // As Scheduler::Schedule and PlanChanger::AfterRound: what fits is placed; then room is made for
  // the first that waits, or, where none does, what is free is used.
  Round Decide(const World& world) override {
    std::vector<DeviceState> states = world.DeviceStates();
    const Decision decision = server::Decide(world.queue, states, world.now_us);
    Round round = PlacedBy(decision, world);
    for (const Start& start : round.starts) {
      states[start.place].reserved_bytes += start.bytes;
      states[start.place].jobs += 1;
    }
    if (decision.head.empty())
      RelaxAll(world, states, round);
    else
      MakeRoomFor(*world.jobs.at(decision.head), world, states, round);
    return round;
  }

 private:
  // Whose plans can be changed now: as PlanChanger::ChoicesOn, none while one of them is being
  // changed, and none that loads its model.
  static std::vector<SqueezableJob> ChoicesIn(const Place& place) {
    std::vector<SqueezableJob> choices;
    for (const Attempt& attempt : place.attempts) {
      if (attempt.next_plan >= 0) return {};
      if (!attempt.steps) continue;
      choices.push_back({.job = attempt.job->id,
                         .priority = attempt.job->priority,
                         .plans = *attempt.job->plans,
                         .current = attempt.plan});
    }
    return choices;
  }

  static void Order(const std::vector<PlanMove>& moves, size_t place, Round& round) {
    for (const PlanMove& move : moves) round.changes.push_back({move.job, place, move.plan});
  }

  static void RelaxAll(const World& world, const std::vector<DeviceState>& states, Round& round) {
    for (size_t i = 0; i < states.size(); ++i)
      Order(Relaxations(states[i], ChoicesIn(world.places[i])), i, round);
  }

  static void MakeRoomFor(const Job& newcomer, const World& world,
                          const std::vector<DeviceState>& states, Round& round) {
    const SqueezableJob wanted{
        .job = newcomer.id, .priority = newcomer.priority, .plans = *newcomer.plans};
    std::vector<Neighbourhood> neighbourhoods;
    for (size_t i = 0; i < states.size(); ++i)
      neighbourhoods.push_back({states[i], wanted, ChoicesIn(world.places[i])});
    const std::optional<SqueezeThere> best = BestSqueeze(neighbourhoods);
    if (best) Order(best->made.moves, best->where, round);
  }
};

}  // namespace

std::unique_ptr<Policy> MakeSnug() { return std::make_unique<Snug>(); }
std::unique_ptr<Policy> MakeExclusive() { return std::make_unique<Alone>(); }
std::unique_ptr<Policy> MakeFixed() { return std::make_unique<Fixed>(); }

}  // namespace snug::server::sim
