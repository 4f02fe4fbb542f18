#include "worker/program/planning/frontier.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

namespace snug::program {
namespace {

// Seconds per byte: at these either the time or the bytes count for nothing.
constexpr double kCheapest = 1e-30, kDearest = 1.0;
constexpr double kPriceStep = 1.02;

// With few blocks one more step of one of them is a good part of the whole, and where a search
// starts decides where it ends: it starts again from smaller mixes.
constexpr double kStarts[] = {1.0, 1.2, 1.5, 2.0, 4.0, 1e6};
constexpr size_t kFewBlocks = 33;

constexpr int64_t kNoBytes = std::numeric_limits<int64_t>::min();

// A mix that is being changed, block by block, within a budget.
class Packing {
 public:
  Packing(const PlanSpace& space, int64_t budget)
      : space_(space), budget_(budget), mix_(space.blocks(), 0) {}

  // Each block's cheapest choice at `price` seconds a byte, of the first `others` blocks at
  // `other_price`. False: some block fits nowhere.
  bool Place(double price, size_t others = 0, double other_price = 0.0) {
    int64_t base = 0;
    for (size_t b = 0; b < mix_.size(); ++b) {
      if (b == 0 || b == others) cheapest_.assign(space_.kinds().size(), nullptr);
      const Offer*& best = cheapest_[space_.KindIndex(b)];
      // The base only rises: what was the cheapest is so for as long as it fits.
      if (best == nullptr || base + best->peak_bytes > budget_)
        best = CheapestAt(base, b < others ? other_price : price, space_.KindOf(b).offers);
      if (best == nullptr) return false;
      mix_[b] = static_cast<uint16_t>(best - space_.KindOf(b).offers.data());
      base += best->frame_bytes;
    }
    return true;
  }

  // Gives away what is left of the budget.
  void Fill() {
    Measure();
    while (const std::optional<Change> change = BestChange()) Take(*change);
  }

  const Mix& mix() const { return mix_; }

 private:
  struct Change {
    size_t block = 0;
    size_t choice = 0;
  };

  const Offer* CheapestAt(int64_t base, double price, const std::vector<Offer>& offers) const {
    const Offer* best = nullptr;
    double least = 0.0;
    for (const Offer& offer : offers) {
      if (base + offer.peak_bytes > budget_) continue;
      const double cost = offer.seconds + price * static_cast<double>(offer.frame_bytes);
      if (best != nullptr && cost >= least) continue;
      best = &offer;
      least = cost;
    }
    return best;
  }

  const Choice& ChoiceOf(size_t b) const { return space_.KindOf(b).choices[mix_[b]]; }
  int64_t TopOf(size_t b) const { return bases_[b] + space_.PriceOf(mix_, b).peak_bytes(); }

  void Measure() {
    bases_.assign(mix_.size() + 1, 0);
    tops_.assign(mix_.size() + 1, kNoBytes);
    for (size_t b = 0; b < mix_.size(); ++b)
      bases_[b + 1] = bases_[b] + ChoiceOf(b).price.frame_bytes;
    for (size_t b = mix_.size(); b-- > 0;) tops_[b] = std::max(tops_[b + 1], TopOf(b));
    ends_.clear();
    for (size_t b = 0; b < mix_.size(); ++b) NoteEnd(b);
  }

  // What Measure finds with the change. A fill takes about as many changes as there are blocks, so
  // one must not look at all of them: those behind the block are lifted together, and of those in
  // front only the ones that it stood above so far have another top.
  void Take(const Change& change) {
    const size_t b = change.block, all = mix_.size();
    const int64_t before = ChoiceOf(b).price.frame_bytes;
    mix_[b] = static_cast<uint16_t>(change.choice);
    const int64_t more = ChoiceOf(b).price.frame_bytes - before;
    for (size_t i = b + 1; i <= all; ++i) bases_[i] += more;
    for (size_t i = b + 1; i < all; ++i) tops_[i] += more;
    tops_[b] = std::max(tops_[b + 1], TopOf(b));
    for (size_t i = b; i-- > 0;) {
      const int64_t top = std::max(tops_[i + 1], TopOf(i));
      if (top == tops_[i]) break;
      tops_[i] = top;
    }
    for (size_t i = b == 0 ? 0 : b - 1; i <= b + 1 && i < all; ++i) NoteEnd(i);
  }

  void NoteEnd(size_t b) {
    if (AtEndOfRun(b)) {
      ends_.insert(b);
    } else {
      ends_.erase(b);
    }
  }

  // Blocks in the middle of a run of like ones stand worse than those at its ends.
  bool AtEndOfRun(size_t b) const {
    if (b == 0 || b + 1 == mix_.size()) return true;
    const auto like = [&](size_t other) {
      return space_.KindIndex(other) == space_.KindIndex(b) && mix_[other] == mix_[b];
    };
    return !like(b - 1) || !like(b + 1);
  }

  bool Fits(size_t b, size_t c) const {
    const Choice& choice = space_.KindOf(b).choices[c];
    const size_t behind = b + 1 < mix_.size() ? ChoiceOf(b + 1).handover : 0;
    if (bases_[b] + choice.price_before[behind].peak_bytes() > budget_) return false;
    if (b == 0) return true;
    const BlockPrice& before = ChoiceOf(b - 1).price_before[choice.handover];
    return bases_[b - 1] + before.peak_bytes() <= budget_;
  }

  std::optional<Change> BestChange() const {
    double best_rate = 0.0;
    Change best;
    for (const size_t b : ends_) {
      const std::vector<Offer>& offers = space_.KindOf(b).offers;
      if (offers.size() < 2) continue;
      const Offer now = offers[mix_[b]];
      const int64_t room = tops_[b + 1] == kNoBytes ? budget_ : budget_ - tops_[b + 1];
      for (size_t c = 0; c < offers.size(); ++c) {
        const double saved = now.seconds - offers[c].seconds;
        const int64_t more = offers[c].frame_bytes - now.frame_bytes;
        if (saved <= 0.0 || more > room) continue;
        const double rate = saved / static_cast<double>(std::max<int64_t>(more, 1));
        if (rate <= best_rate || !Fits(b, c)) continue;
        best_rate = rate;
        best = {b, c};
      }
    }
    if (best_rate == 0.0) return std::nullopt;
    return best;
  }

  const PlanSpace& space_;
  const int64_t budget_;
  Mix mix_;
  std::vector<const Offer*> cheapest_;     // By kind of block.
  std::vector<int64_t> bases_;             // By block: where its frame begins.
  std::vector<int64_t> tops_;              // By block: the highest peak of it and those behind it.
  std::set<size_t, std::greater<>> ends_;  // Blocks at an end of a run, the last first.
};

// A budget, and the time of what was found for it.
struct Found {
  int64_t bytes = 0;
  double seconds = 0.0;
};

// Searches between two budgets until neighbours are alike.
class Refinement {
 public:
  Refinement(const PlanSpace& space, std::vector<FrontierPoint>& points)
      : space_(space), points_(points) {}

  void Between(Found low, Found high, double step) {
    std::vector<std::pair<Found, Found>> open = {{low, high}};
    size_t left = kBlocksSearched / space_.blocks() + kLeastSearches;
    for (; left > 0 && !open.empty(); --left) {
      // The widest in time first: should the searches run out, nothing is left out entirely.
      const auto widest =
          std::max_element(open.begin(), open.end(), [](const auto& a, const auto& b) {
            return a.first.seconds - a.second.seconds < b.first.seconds - b.second.seconds;
          });
      const auto [below, above] = *widest;
      open.erase(widest);
      if (below.seconds - above.seconds <= step) return;
      if (above.bytes - below.bytes <= above.bytes / kLeastShare) continue;
      Found middle{below.bytes + (above.bytes - below.bytes) / 2, below.seconds};
      if (std::optional<FrontierPoint> point = FastestWithin(space_, middle.bytes)) {
        middle.seconds = std::min(middle.seconds, point->price.seconds);
        points_.push_back(*std::move(point));
      }
      open.push_back({below, middle});
      open.push_back({middle, above});
    }
  }

 private:
  // A search takes 2 us a block. Of few blocks the plans lie far apart, and each counts.
  static constexpr size_t kBlocksSearched = 3000, kLeastSearches = 40;
  static constexpr int64_t kLeastShare = 4096;  // Of a budget: less apart, two are alike.

  const PlanSpace& space_;
  std::vector<FrontierPoint>& points_;
};

// The smallest budget for which the search finds a mix, to a thousandth: at most `bytes`.
void AddSmallest(const PlanSpace& space, int64_t bytes, std::vector<FrontierPoint>& points) {
  int64_t none = 0;
  while (bytes - none > bytes / 1024 + 1) {
    const int64_t middle = none + (bytes - none) / 2;
    std::optional<FrontierPoint> point = FastestWithin(space, middle);
    if (!point.has_value()) {
      none = middle;
      continue;
    }
    bytes = std::min(middle, point->price.arena_bytes);
    points.push_back(*std::move(point));
  }
}

// By falling bytes; of those that another beats in both, none.
std::vector<FrontierPoint> Unbeaten(std::vector<FrontierPoint> points) {
  const auto key = [](const FrontierPoint& p) {
    return std::pair(p.price.arena_bytes, p.price.seconds);
  };
  std::stable_sort(points.begin(), points.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<FrontierPoint> left;
  for (FrontierPoint& point : points) {
    if (left.empty() || point.price.seconds < left.back().price.seconds)
      left.push_back(std::move(point));
  }
  std::reverse(left.begin(), left.end());
  return left;
}

}  // namespace

std::optional<FrontierPoint> FastestWithin(const PlanSpace& space, int64_t arena_bytes) {
  Packing packing(space, arena_bytes);
  double price = 0.0, cheap = kCheapest;
  if (!packing.Place(price)) {
    price = kDearest;
    if (!packing.Place(price)) return std::nullopt;
    while (price > kPriceStep * cheap) {
      const double middle = std::sqrt(price * cheap);
      (packing.Place(middle) ? price : cheap) = middle;
    }
  }
  std::optional<FrontierPoint> best;
  const auto fill = [&] {
    packing.Fill();
    const MixPrice found = space.Price(packing.mix());
    if (!best.has_value() || found.seconds < best->price.seconds) best = {packing.mix(), found};
  };
  for (const double factor : kStarts) {
    if (!packing.Place(price * factor)) continue;
    fill();
    if (price == 0.0 || space.blocks() > kFewBlocks) break;
  }
  if (price == 0.0) return best;
  // Between two prices lie many blocks that change alike: as many of the first as fit.
  size_t fit = 0, none = space.blocks();
  while (none - fit > 1) {
    const size_t middle = fit + (none - fit) / 2;
    (packing.Place(price, middle, cheap) ? fit : none) = middle;
  }
  if (packing.Place(price, fit, cheap)) fill();
  return best;
}

std::vector<FrontierPoint> FrontierOf(const PlanSpace& space) {
  std::vector<FrontierPoint> points;
  int layers = 0;
  for (size_t b = 0; b < space.blocks(); ++b) layers += space.KindOf(b).decided ? 1 : 0;
  for (int k = 0; k <= layers; ++k) {
    const Mix mix = space.RecomputeMix(k);
    points.push_back({mix, space.Price(mix)});
  }
  const MixPrice keep = points.front().price;
  const auto smallest = [&points] {
    return std::min_element(points.begin(), points.end(),
                            [](const auto& a, const auto& b) {
                              return a.price.arena_bytes < b.price.arena_bytes;
                            })
        ->price;
  };
  AddSmallest(space, smallest().arena_bytes, points);
  const MixPrice least = smallest();
  Refinement(space, points)
      .Between({least.arena_bytes, least.seconds}, {keep.arena_bytes, keep.seconds},
               kFrontierStep * keep.seconds);
  return Unbeaten(std::move(points));
}

}  // namespace snug::program
