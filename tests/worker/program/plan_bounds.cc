#include "tests/worker/program/plan_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace snug::program {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

int64_t LeastPeak(const Choice& choice) {
  int64_t least = choice.price.peak_bytes();
  for (const BlockPrice& price : choice.price_before) least = std::min(least, price.peak_bytes());
  return least;
}

// Least time plus price x frame of the blocks from `first` to the one before the head.
std::vector<double> LeastCosts(const PlanSpace& space, double price, int64_t arena_bytes) {
  const size_t head = space.blocks() - 1;
  std::vector<int64_t> least_base(head + 1);
  for (size_t b = 0; b < head; ++b) {
    int64_t frame = std::numeric_limits<int64_t>::max();
    for (const Choice& choice : space.KindOf(b).choices)
      frame = std::min(frame, choice.price.frame_bytes);
    least_base[b + 1] = least_base[b] + frame;
  }
  std::vector<double> costs(head + 1);
  costs[head] = space.KindOf(head).choices[0].price.seconds;
  for (size_t b = head; b-- > 0;) {
    double least = kNever;
    for (const Choice& choice : space.KindOf(b).choices) {
      if (least_base[b] + LeastPeak(choice) > arena_bytes) continue;  // In no mix at all.
      least = std::min(
          least, choice.price.seconds + price * static_cast<double>(choice.price.frame_bytes));
    }
    costs[b] = costs[b + 1] + least;
  }
  return costs;
}

int64_t RoomUnderHead(const PlanSpace& space, int64_t arena_bytes) {
  return arena_bytes - space.KindOf(space.blocks() - 1).choices[0].price.peak_bytes();
}

// Prices of a byte, from next to nothing to too much.
std::vector<double> Prices() {
  std::vector<double> prices = {0.0};
  for (double power = -18.0; power < -3.0; power += 0.05) prices.push_back(std::pow(10.0, power));
  return prices;
}

// Of all mixes those in which the frames in front of a block leave `peak` of the arena or more
// before `first`, and less from there on.
struct Case {
  int64_t peak = 0;
  size_t first = std::numeric_limits<size_t>::max();
};

class Dual {
 public:
  Dual(const PlanSpace& space, int64_t arena_bytes, const Case& mixes = {})
      : space_(space), budget_(arena_bytes) {
    int64_t least_base = 0;
    for (size_t b = 0; b < space.blocks(); ++b) {
      std::vector<Part>& parts = parts_.emplace_back();
      int64_t least_frame = std::numeric_limits<int64_t>::max();
      for (const Choice& choice : space.KindOf(b).choices) {
        const int64_t frame = choice.price.frame_bytes;
        int64_t peak = LeastPeak(choice);
        least_frame = std::min(least_frame, frame);
        if (b >= mixes.first && peak >= mixes.peak) continue;
        if (b < mixes.first) peak = std::max(peak, mixes.peak);
        if (least_base + peak > arena_bytes) continue;  // In no mix at all.
        parts.push_back(
            {static_cast<double>(frame), static_cast<double>(peak), choice.price.seconds});
      }
      least_base += least_frame;
    }
  }

  // Whether there is such a mix at all, as far as it shows.
  bool any() const {
    return std::none_of(parts_.begin(), parts_.end(), [](const auto& p) { return p.empty(); });
  }

  // `prices` by block, those of the last ones.
  double Bound(const std::vector<double>& prices) {
    const size_t first = space_.blocks() - prices.size();
    double bound = 0.0, behind = 0.0;  // Of a byte of frame: the prices of all blocks behind.
    std::vector<const Part*> least(space_.blocks());
    for (size_t b = space_.blocks(); b-- > 0;) {
      const double price = b >= first ? prices[b - first] : 0.0;
      double cost = kNever;
      for (const Part& part : parts_[b]) {
        const double sum = part.seconds + behind * part.frame + price * part.peak;
        if (sum < cost) cost = sum, least[b] = &part;
      }
      bound += cost - price * static_cast<double>(budget_);
      behind += price;
    }
    slopes_.clear();
    double base = 0.0;
    for (const Part* part : least) {
      slopes_.push_back(base + part->peak - static_cast<double>(budget_));
      base += part->frame;
    }
    return bound;
  }

  // By block: how much the mix of the last bound is over the budget there.
  const std::vector<double>& slopes() const { return slopes_; }

 private:
  struct Part {
    double frame = 0.0, peak = 0.0, seconds = 0.0;
  };
  const PlanSpace& space_;
  const int64_t budget_;
  std::vector<std::vector<Part>> parts_;
  std::vector<double> slopes_;
};

struct Label {
  int64_t base = 0;      // Frames before the block.
  double seconds = 0.0;  // Of all blocks up to it.
};

std::vector<Label> Unbeaten(std::vector<Label> labels) {
  std::sort(labels.begin(), labels.end(), [](const Label& a, const Label& b) {
    return std::pair(a.base, a.seconds) < std::pair(b.base, b.seconds);
  });
  std::vector<Label> left;
  for (const Label& label : labels) {
    if (left.empty() || label.seconds < left.back().seconds) left.push_back(label);
  }
  return left;
}

double BoundOf(Dual& dual, size_t blocks, double known) {
  double best = 0.0, best_price = 0.0;
  for (double price : Prices()) {
    const double bound = dual.Bound(std::vector<double>(1, price));
    if (bound > best) best = bound, best_price = price;
  }
  std::vector<double> prices(blocks, 0.0);
  prices.back() = best_price;
  double reach = 1.0;
  int idle = 0;
  for (int i = 0; i < 3000 && known > best; ++i) {
    const double bound = dual.Bound(prices);
    if (bound > best * (1.0 + 1e-7)) idle = 0;
    best = std::max(best, bound);
    if (++idle > 30) reach /= 2.0, idle = 0;
    const std::vector<double>& slopes = dual.slopes();
    double squares = 0.0;
    for (double slope : slopes) squares += slope * slope;
    const double step = reach * (known - bound) / squares;
    for (size_t b = 0; b < prices.size(); ++b)
      prices[b] = std::max(0.0, prices[b] + step * slopes[b]);
  }
  return best;
}

// Of the peaks of a layer's choices, the upper of the two that lie farthest apart.
int64_t WidestStep(const PlanSpace& space) {
  std::vector<int64_t> peaks;
  for (const Choice& choice : space.KindOf(space.blocks() - 2).choices)
    peaks.push_back(LeastPeak(choice));
  std::sort(peaks.begin(), peaks.end());
  size_t upper = peaks.size() - 1;
  for (size_t i = upper; i-- > 1;)
    if (peaks[i] - peaks[i - 1] > peaks[upper] - peaks[upper - 1]) upper = i;
  return peaks[upper];
}

}  // namespace

double LowerBound(const PlanSpace& space, int64_t arena_bytes, double known) {
  Dual dual(space, arena_bytes);
  return BoundOf(dual, space.blocks(), known);
}

double LowerBoundByCases(const PlanSpace& space, int64_t arena_bytes, double known) {
  const int64_t peak = WidestStep(space);
  double least = known;
  for (size_t first = 0; first <= space.blocks(); ++first) {
    Dual dual(space, arena_bytes, {.peak = peak, .first = first});
    if (dual.any()) least = std::min(least, BoundOf(dual, space.blocks(), known));
  }
  return least;
}

double Optimum(const PlanSpace& space, int64_t arena_bytes, double known) {
  const size_t head = space.blocks() - 1;
  const std::vector<double> prices = Prices();
  std::vector<std::vector<double>> rest;  // By price, by block.
  for (double price : prices) rest.push_back(LeastCosts(space, price, arena_bytes));
  const int64_t room = RoomUnderHead(space, arena_bytes);
  const auto least_behind = [&](size_t block, int64_t base) {
    double least = 0.0;
    for (size_t p = 0; p < prices.size(); ++p)
      least = std::max(least, rest[p][block] - prices[p] * static_cast<double>(room - base));
    return least;
  };
  std::vector<std::vector<Label>> labels;  // By the block's choice.
  for (const Choice& choice : space.KindOf(0).choices)
    labels.push_back({{0, choice.price.seconds}});
  for (size_t b = 0; b < head; ++b) {
    const std::vector<Choice>& now = space.KindOf(b).choices;
    std::vector<std::vector<Label>> next;
    for (const Choice& behind : space.KindOf(b + 1).choices) {
      std::vector<Label> reached;
      for (size_t c = 0; c < now.size(); ++c) {
        const int64_t peak = now[c].price_before[behind.handover].peak_bytes();
        for (const Label& label : labels[c]) {
          const int64_t base = label.base + now[c].price.frame_bytes;
          if (label.base + peak > arena_bytes) continue;
          if (label.seconds + least_behind(b + 1, base) >= known) continue;
          reached.push_back({base, label.seconds + behind.price.seconds});
        }
      }
      next.push_back(Unbeaten(std::move(reached)));
    }
    labels = std::move(next);
  }
  for (const Label& label : labels[0]) {
    if (label.base <= room) known = std::min(known, label.seconds);
  }
  return known;
}

}  // namespace snug::program
