#include "worker/program/lowering/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

namespace snug::program {
namespace {

// Smaller goes first; fixed intervals before all others.
using Key = std::tuple<int, int64_t, int64_t>;

// The instant at which most bytes are live.
int32_t BusiestInstant(const std::vector<Interval>& intervals, int32_t steps) {
  std::vector<int64_t> change(static_cast<size_t>(steps) + 1);
  for (const Interval& i : intervals) {
    change[static_cast<size_t>(i.first)] += i.bytes;
    change[static_cast<size_t>(i.last) + 1] -= i.bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return static_cast<int32_t>(std::max_element(change.begin(), change.end()) - change.begin());
}

// No packing can be lower: at each instant all that is live, over the lowest
// stack that any of it meets.
int64_t LowerBound(const std::vector<Interval>& intervals, int32_t steps) {
  std::vector<int64_t> live(static_cast<size_t>(steps)), floor(live.size(), INT64_MAX);
  for (const Interval& i : intervals) {
    for (int32_t t = i.first; t <= i.last; ++t) {
      live[static_cast<size_t>(t)] += i.bytes;
      floor[static_cast<size_t>(t)] = std::min(floor[static_cast<size_t>(t)], i.floor);
    }
  }
  int64_t bound = 0;
  for (size_t t = 0; t < live.size(); ++t) {
    if (live[t] > 0) bound = std::max(bound, live[t] + floor[t]);
  }
  return bound;
}

// Lowest free offset, one after another; returns early once it is no better
// than `give_up_at`.
int64_t PackInOrder(std::vector<Interval>& intervals, const std::vector<int>& order,
                    int64_t give_up_at) {
  struct Placed {
    int64_t from, to;
    int32_t first, last;
  };
  std::vector<Placed> placed;  // By rising `from`.
  placed.reserve(intervals.size());
  int64_t height = 0;
  for (int index : order) {
    Interval& current = intervals[static_cast<size_t>(index)];
    if (!current.fixed) {
      current.offset = 0;
      for (const Placed& other : placed) {
        if (other.last < current.first || current.last < other.first) continue;
        if (current.offset + current.bytes <= other.from) break;
        current.offset = std::max(current.offset, other.to);
      }
    }
    const Placed here = {current.offset, current.offset + current.bytes, current.first,
                         current.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), here,
                         [](const Placed& a, const Placed& b) { return a.from < b.from; }),
        here);
    height = std::max(height, current.floor + current.offset + current.bytes);
    if (height >= give_up_at) return height;
  }
  return height;
}

}  // namespace

void StackIntervals(std::vector<Interval>& intervals) {
  std::vector<int> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const Interval &x = intervals[static_cast<size_t>(a)], &y = intervals[static_cast<size_t>(b)];
    return std::pair(-x.last, x.first) < std::pair(-y.last, y.first);
  });
  PackInOrder(intervals, order, INT64_MAX);
}

int64_t PackIntervals(std::vector<Interval>& intervals, int32_t steps) {
  if (intervals.empty()) return 0;
  const int32_t busiest = BusiestInstant(intervals, steps);
  const auto calm = [busiest](const Interval& i) {
    return i.first <= busiest && busiest <= i.last ? 0 : 1;
  };
  const auto duration = [](const Interval& i) {
    return static_cast<int64_t>(i.last - i.first + 1);
  };
  const std::function<Key(const Interval&)> orders[] = {
      [](const Interval& i) { return Key(0, i.first, -i.bytes); },
      [](const Interval& i) { return Key(0, -i.bytes, i.first); },
      [&](const Interval& i) { return Key(0, -duration(i), -i.bytes); },
      [&](const Interval& i) { return Key(0, -duration(i) * i.bytes, i.first); },
      [&](const Interval& i) { return Key(calm(i), -duration(i), -i.bytes); },
      [&](const Interval& i) { return Key(calm(i), -i.bytes, -duration(i)); },
  };
  const int64_t bound = LowerBound(intervals, steps);
  int64_t best = INT64_MAX;
  std::vector<Interval> best_intervals;
  std::vector<int> order(intervals.size());
  std::vector<Key> keys(intervals.size());
  for (const auto& key_of : orders) {
    for (size_t i = 0; i < intervals.size(); ++i)
      keys[i] = intervals[i].fixed ? Key(-1, 0, 0) : key_of(intervals[i]);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return keys[static_cast<size_t>(a)] < keys[static_cast<size_t>(b)];
    });
    const int64_t height = PackInOrder(intervals, order, best);
    if (height >= best) continue;
    best = height;
    best_intervals = intervals;
    if (best <= bound) break;
  }
  intervals = std::move(best_intervals);
  return best;
}

}  // namespace snug::program
