#include "worker/program/lowering/layout.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "worker/program/lowering/buffers.h"
#include "worker/program/lowering/packing.h"

namespace snug::program {
namespace {

class Layouter {
 public:
  explicit Layouter(Script script)
      : script_(std::move(script)), pass_(PassOfLines(script_)), buffers_(ShareBuffers(script_)) {}

  Layout LayOut() {
    MakeSlots();
    AddWorkspaces();
    layout_.stash_bytes = Stack(Region::kStash);
    layout_.host_bytes = Stack(Region::kHost);
    FindHeights();
    layout_.arena_bytes = *std::max_element(heights_.begin(), heights_.end());
    PlaceCrossing();
    for (size_t p = 0; p + 1 < script_.passes.size(); ++p) PlaceWithin(p);
    // So far offsets of what hangs from the top are distances of its end.
    for (Slot& slot : layout_.slots) {
      if (HangsFromTop(slot)) slot.offset = layout_.arena_bytes - slot.offset;
    }
    NameSlots();
    return std::move(layout_);
  }

 private:
  static bool HangsFromTop(const Slot& slot) {
    return slot.region == Region::kScratch || slot.region == Region::kWorkspace;
  }
  Slot& SlotAt(int32_t slot) { return layout_.slots[static_cast<size_t>(slot)]; }
  int32_t LastLine() const { return static_cast<int32_t>(script_.lines.size()) - 1; }

  void MakeSlots() {
    layout_.slots.reserve(buffers_.buffers.size() + script_.lines.size());
    for (const Buffer& buffer : buffers_.buffers) {
      layout_.slots.push_back({.bytes = buffer.bytes,
                               .first = buffer.first,
                               .last = buffer.last,
                               .region = buffer.on_host ? Region::kHost
                                         : buffer.kept  ? Region::kStash
                                                        : Region::kScratch});
    }
  }

  // Each line has one of its own, but for lines that run ahead: together they have one beside those
  // of what runs meanwhile.
  void AddWorkspaces() {
    const std::vector<int32_t> held_until = HeldUntil(script_);
    workspace_.assign(script_.lines.size(), kNoSlot);
    int32_t ahead = kNoSlot;
    for (int32_t t = 0; t <= LastLine(); ++t) {
      const int64_t bytes = script_.needs[static_cast<size_t>(t)].workspace_bytes;
      if (bytes == 0) continue;
      const int32_t until = held_until[static_cast<size_t>(t)];
      if (until > t && ahead != kNoSlot && SlotAt(ahead).last == until) {
        workspace_[static_cast<size_t>(t)] = ahead;
        SlotAt(ahead).bytes = std::max(SlotAt(ahead).bytes, bytes);
        continue;
      }
      const auto slot = static_cast<int32_t>(layout_.slots.size());
      workspace_[static_cast<size_t>(t)] = slot;
      if (until > t) ahead = slot;
      layout_.slots.push_back(
          {.bytes = bytes, .first = t, .last = until, .region = Region::kWorkspace});
    }
  }

  // Gives the stack's height.
  int64_t Stack(Region region) {
    std::vector<Slot*> order;
    for (Slot& slot : layout_.slots) {
      if (slot.region == region) order.push_back(&slot);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Slot* a, const Slot* b) { return a->last > b->last; });
    int64_t height = 0;
    for (Slot* slot : order) {
      slot->offset = height;
      height += Aligned(slot->bytes);
    }
    return height;
  }

  // Height of the stack at each line.
  void FindHeights() {
    heights_.assign(script_.lines.size() + 1, 0);
    std::vector<const Slot*> by_birth;
    for (const Slot& slot : layout_.slots) {
      if (slot.region == Region::kStash) by_birth.push_back(&slot);
    }
    std::sort(by_birth.begin(), by_birth.end(),
              [](const Slot* a, const Slot* b) { return a->first < b->first; });
    const auto lower = [](const Slot* a, const Slot* b) { return a->offset < b->offset; };
    std::priority_queue<const Slot*, std::vector<const Slot*>, decltype(lower)> live(lower);
    auto next = by_birth.begin();
    for (int32_t t = 0; t <= LastLine(); ++t) {
      for (; next != by_birth.end() && (*next)->first <= t; ++next) live.push(*next);
      while (!live.empty() && live.top()->last < t) live.pop();
      if (!live.empty())
        heights_[static_cast<size_t>(t)] = live.top()->offset + Aligned(live.top()->bytes);
    }
  }

  Interval IntervalOf(const Slot& slot, int32_t from, int32_t to) const {
    const int32_t first = std::max(slot.first, from), last = std::min(slot.last, to);
    return {.first = first - from,
            .last = last - from,
            .bytes = Aligned(slot.bytes),
            .floor = *std::max_element(heights_.begin() + first, heights_.begin() + last + 1)};
  }

  // What lives in several passes, and which passes those are.
  void PlaceCrossing() {
    by_pass_.resize(script_.passes.size());
    std::vector<Interval> intervals;
    std::vector<int32_t> crossing;
    for (size_t s = 0; s < layout_.slots.size(); ++s) {
      const Slot& slot = layout_.slots[s];
      if (!HangsFromTop(slot)) continue;
      const auto first = static_cast<size_t>(pass_[static_cast<size_t>(slot.first)]);
      const auto last = static_cast<size_t>(pass_[static_cast<size_t>(slot.last)]);
      for (size_t p = first; p <= last; ++p) by_pass_[p].push_back(static_cast<int32_t>(s));
      if (first == last) continue;
      crossing.push_back(static_cast<int32_t>(s));
      intervals.push_back(IntervalOf(slot, 0, LastLine()));
    }
    StackIntervals(intervals);
    for (size_t i = 0; i < crossing.size(); ++i) {
      Slot& slot = layout_.slots[static_cast<size_t>(crossing[i])];
      slot.offset = intervals[i].offset + intervals[i].bytes;
    }
  }

  // What lives in one pass, around what crosses it. Floors count from the lowest stack of the pass,
  // so that passes of the same shape are the same.
  void PlaceWithin(size_t p) {
    const int32_t from = script_.passes[p], to = script_.passes[p + 1] - 1;
    const int64_t base = *std::min_element(heights_.begin() + from, heights_.begin() + to + 1);
    std::vector<Interval> intervals;
    std::vector<int64_t> shape = {to - from};
    for (int32_t s : by_pass_[p]) {
      const Slot& slot = layout_.slots[static_cast<size_t>(s)];
      Interval interval = IntervalOf(slot, from, to);
      interval.floor -= base;
      interval.fixed = slot.first < from || slot.last > to;
      if (interval.fixed) interval.offset = slot.offset - interval.bytes;
      intervals.push_back(interval);
      shape.insert(shape.end(), {interval.first, interval.last, interval.bytes, interval.floor,
                                 interval.fixed ? interval.offset : -1});
    }
    const Packed& packed = Pack(std::move(shape), intervals, to - from + 1);
    layout_.arena_bytes = std::max(layout_.arena_bytes, base + packed.height);
    for (size_t i = 0; i < by_pass_[p].size(); ++i) {
      Slot& slot = layout_.slots[static_cast<size_t>(by_pass_[p][i])];
      slot.offset = packed.offsets[i] + Aligned(slot.bytes);
    }
  }

  struct Packed {
    int64_t height = 0;
    std::vector<int64_t> offsets;
  };

  const Packed& Pack(std::vector<int64_t> shape, std::vector<Interval>& intervals, int32_t steps) {
    const auto [found, inserted] = packed_.try_emplace(std::move(shape));
    if (inserted) {
      found->second.height = PackIntervals(intervals, steps);
      for (const Interval& interval : intervals) found->second.offsets.push_back(interval.offset);
    }
    return found->second;
  }

  void NameSlots() {
    layout_.instructions = std::move(script_.lines);
    for (size_t t = 0; t < layout_.instructions.size(); ++t) {
      Instruction& line = layout_.instructions[t];
      line.operands.ForEach([&](Operand& operand) {
        if (operand) operand.slot = buffers_.of[static_cast<size_t>(operand.slot)];
      });
      for (int32_t& gradient : line.gradients) {
        if (gradient != kNoSlot) gradient = buffers_.of[static_cast<size_t>(gradient)];
      }
      line.workspace = workspace_[t];
    }
  }

  Script script_;
  const std::vector<int32_t> pass_;  // By line.
  const Buffers buffers_;
  std::vector<int32_t> workspace_;             // By line: its slot.
  std::vector<int64_t> heights_;               // By line.
  std::vector<std::vector<int32_t>> by_pass_;  // Slots that are not stashes.
  std::map<std::vector<int64_t>, Packed> packed_;
  Layout layout_;
};

}  // namespace

Layout LayOut(Script script) { return Layouter(std::move(script)).LayOut(); }

}  // namespace snug::program
