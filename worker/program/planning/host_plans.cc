#include "worker/program/planning/host_plans.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/program/planning/block_cost.h"

namespace snug::program {
namespace {

// A layer of a plan takes some 15 us to lower: with these, 80 layers have 12 plans.
constexpr size_t kLayersLowered = 960, kFewestPlans = 8, kMostPlans = 64;

// What a byte of the host's memory counts for, in parts of what it takes to run a byte again. At
// the first price plans use as much of it as helps, at the second they save it.
constexpr double kHostPrices[] = {0.0, 0.5};

// The part of the time of copies that shows even where all of them could hide.
constexpr double kShown = 1.0 / 32.0;

// How a block keeps its values, and what that takes by estimate.
struct HostWay {
  Recipe recipe;
  double bytes = 0.0;  // Of the arena.
  double host_bytes = 0.0;
  double seconds = 0.0;

  bool on_host() const { return host_bytes > 0.0; }
};

// Blocks of a kind go over to a way, one after another.
struct HullStep {
  size_t kind = 0;
  size_t way = 0;
  double bytes = 0.0;    // What a block gives back by it,
  double seconds = 0.0;  // what it takes for that,
  double rate = 0.0;     // and that for a byte.

  // Its length on the walk. What a budget between two plans of the walk may cost beyond its optimum
  // goes by the bytes times the seconds between them.
  double length() const { return std::sqrt(bytes * std::max(seconds, 0.0)); }
};

// From keep, each to the corner of the hull that is next.
std::vector<HullStep> HullStepsOf(const std::vector<HostWay>& ways, double host_price) {
  const auto cost = [&](size_t w) { return ways[w].seconds + host_price * ways[w].host_bytes; };
  std::vector<HullStep> steps;
  size_t at = kKeepAll;
  while (true) {
    std::optional<HullStep> next;
    for (size_t w = 0; w < ways.size(); ++w) {
      const double bytes = ways[at].bytes - ways[w].bytes, seconds = cost(w) - cost(at);
      if (bytes <= 0.0 || (next.has_value() && seconds / bytes >= next->rate)) continue;
      next = HullStep{.way = w, .bytes = bytes, .seconds = seconds, .rate = seconds / bytes};
    }
    if (!next.has_value()) return steps;
    at = next->way;
    // On a hull rates rise, but for rounding.
    if (!steps.empty()) next->rate = std::max(next->rate, steps.back().rate);
    steps.push_back(*next);
  }
}

// Finds the ways of a kind of block.
class HostWayFinder {
 public:
  HostWayFinder(const Program& program, const LowerOptions& options, size_t layers)
      : program_(program), options_(options), layers_(static_cast<double>(layers)) {}

  // Those of the space; and of the corners of their hull, with all of what they keep on the host,
  // and with as much of it as hides.
  absl::StatusOr<std::vector<HostWay>> WaysOf(const BlockKind& kind) const {
    const BlockPricer pricer(
        program_,
        {.block = kind.block, .d_input_wanted = kind.d_input_wanted, .behind = std::nullopt},
        options_);
    std::vector<HostWay> ways;
    for (const Choice& choice : kind.choices) ways.push_back(WayOf(choice, {}));
    std::vector<size_t> corners = {kKeepAll};
    for (const HullStep& step : HullStepsOf(ways, /*host_price=*/0.0)) corners.push_back(step.way);
    for (const size_t corner : corners) {
      const Choice& choice = kind.choices[corner];
      ASSIGN_OR_RETURN(const std::vector<HeldValue> held, pricer.HeldValues(choice.recipe));
      for (const std::vector<HeldValue>& moved : {held, HiddenOf(held, choice.price)})
        if (!moved.empty()) ways.push_back(WayOf(choice, moved));
    }
    return ways;
  }

 private:
  struct CopyTime {
    double all = 0.0;
    double shown = 0.0;
    bool hides() const { return shown <= 1.001 * kShown * all; }  // But for rounding.
  };

  // `moved` in the order in which they are made.
  HostWay WayOf(const Choice& choice, const std::vector<HeldValue>& moved) const {
    HostWay way{.recipe = choice.recipe};
    int64_t bytes = 0, largest = 0;
    for (const HeldValue& each : moved) {
      way.recipe[static_cast<size_t>(each.value)] = Stash::kOffload;
      bytes += each.bytes;
      largest = std::max(largest, each.bytes);
    }
    // Two are there at a time: the one that is read and the one on its way. What a block takes
    // beyond its frame the arena has once.
    const auto frame = static_cast<double>(choice.price.frame_bytes - bytes);
    const auto peak = static_cast<double>(choice.price.peak_bytes() - bytes + 2 * largest);
    way.bytes = frame + (peak - frame) / layers_;
    way.host_bytes = static_cast<double>(bytes);
    way.seconds = choice.price.seconds + TimeOf(moved, choice.price).shown;
    return way;
  }

  // A copy hides while what lies between its value and the next one that is copied computes; on a
  // CPU none does. Backward reads them as far apart as forward made them, at its own pace.
  CopyTime TimeOf(const std::vector<HeldValue>& moved, const BlockPrice& price) const {
    const double forward = price.forward_seconds, backward = price.seconds - forward;
    const bool hides = !options_.machine.cpu && forward > 0.0;
    CopyTime time;
    for (size_t i = 0; i < moved.size(); ++i) {
      const double next = i + 1 < moved.size() ? moved[i + 1].made : forward + moved.front().made;
      const double between = hides ? (next - moved[i].made) / forward : 0.0;
      for (const Limit limit : {Limit::kToHost, Limit::kFromHost}) {
        Work copy;
        copy[limit] = static_cast<double>(moved[i].bytes);
        copy[Limit::kRuns] = 1.0;
        const double seconds = SecondsOf(copy, options_.machine);
        const double computes = between * (limit == Limit::kToHost ? forward : backward);
        time.all += seconds;
        time.shown += std::max(kShown * seconds, seconds - computes);
      }
    }
    return time;
  }

  // Those that hide beside the larger ones that do.
  std::vector<HeldValue> HiddenOf(const std::vector<HeldValue>& held,
                                  const BlockPrice& price) const {
    std::vector<size_t> by_size(held.size());
    std::iota(by_size.begin(), by_size.end(), size_t{0});
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](size_t a, size_t b) { return held[a].bytes > held[b].bytes; });
    std::set<size_t> hidden;
    const auto values = [&] {
      std::vector<HeldValue> moved;
      for (const size_t i : hidden) moved.push_back(held[i]);
      return moved;
    };
    for (const size_t i : by_size) {
      hidden.insert(i);
      if (!TimeOf(values(), price).hides()) hidden.erase(i);
    }
    return values();
  }

  const Program& program_;
  const LowerOptions& options_;
  const double layers_;
};

using WaysOfKinds = std::vector<std::vector<HostWay>>;  // Empty: of no layer.
using WayMix = std::vector<size_t>;                     // By block, an index into its kind's ways.

// From keep to the fewest bytes. The first blocks go first: their stashes live the longest.
class HullWalk {
 public:
  HullWalk(const PlanSpace& space, const WaysOfKinds& ways)
      : ways_(ways), blocks_(space.kinds().size()), start_(space.blocks(), kKeepAll) {
    for (size_t b = 0; b < space.blocks(); ++b) blocks_[space.KindIndex(b)].push_back(b);
  }

  // Adds about `most` of the mixes that it passes.
  void AddMixes(double host_price, size_t most, std::set<WayMix>& mixes) const {
    const std::vector<HullStep> steps = StepsBy(host_price);
    double whole = 0.0;
    for (const HullStep& step : steps)
      whole += step.length() * static_cast<double>(blocks_[step.kind].size());
    const double apart = whole / static_cast<double>(most);
    WayMix mix = start_;
    size_t on_host = 0;  // Blocks.
    double walked = 0.0;
    for (const HullStep& step : steps) {
      for (const size_t b : blocks_[step.kind]) {
        if (walked + step.length() > apart) {
          if (on_host > 0) mixes.insert(mix);
          walked = 0.0;
        }
        on_host -= ways_[step.kind][mix[b]].on_host() ? 1 : 0;
        mix[b] = step.way;
        on_host += ways_[step.kind][mix[b]].on_host() ? 1 : 0;
        walked += step.length();
      }
    }
    if (on_host > 0) mixes.insert(mix);
  }

 private:
  // Those of all kinds, by rising rate.
  std::vector<HullStep> StepsBy(double host_price) const {
    std::vector<HullStep> steps;
    for (size_t k = 0; k < ways_.size(); ++k) {
      if (ways_[k].empty()) continue;
      for (HullStep step : HullStepsOf(ways_[k], host_price)) {
        step.kind = k;
        steps.push_back(step);
      }
    }
    std::stable_sort(steps.begin(), steps.end(),
                     [](const HullStep& a, const HullStep& b) { return a.rate < b.rate; });
    return steps;
  }

  const WaysOfKinds& ways_;
  std::vector<std::vector<size_t>> blocks_;  // By kind.
  const WayMix start_;
};

Plan PlanOfWays(const PlanSpace& space, const WaysOfKinds& ways, const WayMix& mix) {
  Plan plan;
  std::map<std::pair<size_t, size_t>, int> index;  // By kind and way.
  for (size_t b = 0; b < mix.size(); ++b) {
    const size_t kind = space.KindIndex(b);
    if (ways[kind].empty()) continue;
    const auto [it, is_new] =
        index.try_emplace({kind, mix[b]}, static_cast<int>(plan.recipes.size()));
    if (is_new) plan.recipes.push_back(ways[kind][mix[b]].recipe);
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

// Seconds for a byte of the arena, from keep to running everything again.
double PriceOfRunningAgain(const PlanSpace& space, size_t layers) {
  const MixPrice keep = space.Price(space.RecomputeMix(0));
  const MixPrice again = space.Price(space.RecomputeMix(static_cast<int>(layers)));
  const int64_t saved = std::max<int64_t>(keep.arena_bytes - again.arena_bytes, 1);
  return std::max(again.seconds - keep.seconds, 0.0) / static_cast<double>(saved);
}

}  // namespace

absl::StatusOr<std::vector<Plan>> HostPlans(const Program& program, const PlanSpace& space,
                                            const LowerOptions& options) {
  size_t layers = 0;
  for (size_t b = 0; b < space.blocks(); ++b) layers += space.KindOf(b).decided ? 1 : 0;
  const Rates& rates = options.machine.rates;
  if (layers == 0 || !(rates[Limit::kToHost] > 0.0 && rates[Limit::kFromHost] > 0.0))
    return std::vector<Plan>();
  const HostWayFinder finder(program, options, layers);
  WaysOfKinds ways(space.kinds().size());
  for (size_t k = 0; k < ways.size(); ++k) {
    if (!space.kinds()[k].decided) continue;
    ASSIGN_OR_RETURN(ways[k], finder.WaysOf(space.kinds()[k]));
  }
  const size_t most = std::clamp(kLayersLowered / layers, kFewestPlans, kMostPlans);
  const double again = PriceOfRunningAgain(space, layers);
  const HullWalk walk(space, ways);
  std::set<WayMix> mixes;
  for (const double part : kHostPrices)
    walk.AddMixes(part * again, most / std::size(kHostPrices), mixes);
  std::vector<Plan> plans;
  for (const WayMix& mix : mixes) plans.push_back(PlanOfWays(space, ways, mix));
  return plans;
}

}  // namespace snug::program
