#include "worker/program/block_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/scratch_packing.h"

namespace snug::program {
namespace {

// Instances that take one another's buffer.
struct Chain {
  int64_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
  bool kept = false;         // Holds a value that backward reads,
  bool carried_in = false;   // x or dx from the neighbour, in the carry,
  bool carried_out = false;  // x or dx for the neighbour, in the carry,
  bool next_frame = false;   // x for a neighbour that keeps it.
  bool carried() const { return carried_in || carried_out; }
};

class Layouter {
 public:
  Layouter(const BlockScript& script, const BlockType& type, NextBlock next)
      : script_(script), type_(type), next_(next), chain_of_(script.instances.size(), kNoSlot) {}

  absl::StatusOr<BlockLayout> LayOut() {
    if (!script_.error.empty()) return absl::InternalError(script_.error);
    AddBorders();
    for (size_t t = 0; t < script_.lines.size(); ++t) {
      taken_.clear();
      for (int32_t instance : script_.lines[t].fresh)
        RETURN_IF_ERROR(GiveBuffer(instance, static_cast<int32_t>(t)));
    }
    RETURN_IF_ERROR(CheckCarry());
    MakeSlots();
    PlaceFrame();
    PlaceScratch();
    CopyLines();
    return std::move(layout_);
  }

 private:
  const Instance& instance(int32_t i) const { return script_.instances[static_cast<size_t>(i)]; }

  void AddBorders() {
    if (script_.input >= 0) {
      Chain& chain = NewChain(script_.input);
      (script_.input_kept ? chain.kept : chain.carried_in) = true;
    }
    if (script_.d_output >= 0) NewChain(script_.d_output).carried_in = true;
  }

  Chain& NewChain(int32_t i) {
    chain_of_[static_cast<size_t>(i)] = static_cast<int32_t>(chains_.size());
    chains_.push_back({.bytes = instance(i).bytes, .first = instance(i).birth});
    Join(i, chain_of_[static_cast<size_t>(i)]);
    return chains_.back();
  }

  void Join(int32_t i, int32_t chain_index) {
    Chain& chain = chains_[static_cast<size_t>(chain_index)];
    chain_of_[static_cast<size_t>(i)] = chain_index;
    chain.last = std::max(chain.last, instance(i).last);
    chain.kept = chain.kept || instance(i).kept;
    if (i == script_.output) (next_.input_kept ? chain.next_frame : chain.carried_out) = true;
    if (i == script_.d_input) chain.carried_out = true;
  }

  absl::Status GiveBuffer(int32_t fresh, int32_t t) {
    const int32_t grows = instance(fresh).adds_into;
    if (grows >= 0) {
      if (instance(grows).last != t)
        return absl::InternalError(
            absl::StrCat("a gradient of ", SiteOf(fresh), " is read after it was added into"));
      Join(fresh, chain_of_[static_cast<size_t>(grows)]);
      return absl::OkStatus();
    }
    const int32_t over = BestOperand(fresh, t);
    if (over == kNoSlot) {
      NewChain(fresh);
    } else {
      taken_.push_back(chain_of_[static_cast<size_t>(over)]);
      Join(fresh, taken_.back());
    }
    return absl::OkStatus();
  }

  const std::string& SiteOf(int32_t i) const {
    return type_.values[static_cast<size_t>(instance(i).value)].site;
  }

  // The operand whose buffer `fresh` may take: of those in the carry the first, else the youngest.
  int32_t BestOperand(int32_t fresh, int32_t t) const {
    int32_t best = kNoSlot;
    for (int32_t operand : Candidates(fresh, t)) {
      if (operand == kNoSlot || !MayTake(fresh, operand, t)) continue;
      if (chains_[static_cast<size_t>(chain_of_[static_cast<size_t>(operand)])].carried())
        return operand;
      if (best == kNoSlot || instance(operand).birth > instance(best).birth) best = operand;
    }
    return best;
  }

  std::vector<int32_t> Candidates(int32_t fresh, int32_t t) const {
    const Instruction& line = script_.lines[static_cast<size_t>(t)].instruction;
    const Operands& o = line.operands;
    const OpRow& row = RowOf(type_.ops[static_cast<size_t>(line.op)].code);
    std::vector<int32_t> candidates;
    if (fresh == o.out[0]) {
      for (int i = 0; i < kMaxInputs; ++i) {
        if (row.forward_in_place >> i & 1) candidates.push_back(o.in[static_cast<size_t>(i)]);
      }
    }
    for (size_t k = 0; k < kMaxInputs; ++k) {
      if (fresh != o.d_in[k]) continue;
      if (row.backward_in_place[k] & 1) candidates.push_back(o.d_out[0]);
      for (size_t i = 0; i < kMaxInputs; ++i) {
        if (row.backward_in_place[k] >> (8 + i) & 1) candidates.push_back(o.in[i]);
      }
    }
    return candidates;
  }

  bool MayTake(int32_t fresh, int32_t operand, int32_t t) const {
    const int32_t index = chain_of_[static_cast<size_t>(operand)];
    const Chain& chain = chains_[static_cast<size_t>(index)];
    const bool dead = instance(operand).last == t && chain.last == t;
    if (!dead || chain.bytes != instance(fresh).bytes) return false;
    if (std::find(taken_.begin(), taken_.end(), index) != taken_.end()) return false;
    const bool leaves = fresh == script_.output || fresh == script_.d_input;
    const Instruction& line = script_.lines[static_cast<size_t>(t)].instruction;
    // Only the residual stream itself runs through the carry: anything else might still be there
    // when the output is due.
    if (chain.carried()) {
      const bool residual = type_.ops[static_cast<size_t>(line.op)].code == OpCode::kAdd;
      return residual && !instance(fresh).kept && !(leaves && next_.input_kept);
    }
    if (!leaves) return true;
    return !chain.kept && (next_.input_kept || chain.first > CarryBusyUntil(t));
  }

  // The last position at which what came in by the carry is still there.
  int32_t CarryBusyUntil(int32_t t) const {
    int32_t until = kBeforeBlock - 1;
    for (const Chain& chain : chains_) {
      if (chain.carried() && chain.first <= t) until = std::max(until, chain.last);
    }
    return until;
  }

  absl::Status CheckCarry() const {
    for (size_t a = 0; a < chains_.size(); ++a) {
      if (chains_[a].carried() && chains_[a].kept)
        return absl::InternalError("a kept value lies in the carry");
      for (size_t b = 0; b < a; ++b) {
        const bool both = chains_[a].carried() && chains_[b].carried();
        if (both && chains_[a].first <= chains_[b].last && chains_[b].first <= chains_[a].last)
          return absl::InternalError("a block's output is due while its input is in the carry");
      }
    }
    return absl::OkStatus();
  }

  void MakeSlots() {
    for (const Chain& chain : chains_) {
      Place place = chain.kept ? Place::kFrame : Place::kScratch;
      if (chain.next_frame) place = Place::kNextFrame;
      if (chain.carried()) place = Place::kCarry;
      layout_.slots.push_back(
          {.place = place, .bytes = chain.bytes, .first = chain.first, .last = chain.last});
    }
    const auto slot_of = [&](int32_t i) {
      return i < 0 ? kNoSlot : chain_of_[static_cast<size_t>(i)];
    };
    layout_.input = slot_of(script_.input);
    layout_.output = slot_of(script_.output);
    layout_.d_output = slot_of(script_.d_output);
    layout_.d_input = slot_of(script_.d_input);
    layout_.input_kept = script_.input_kept;
    layout_.forward_lines = script_.forward_lines;
  }

  // Ordered by death, the first that dies on top.
  void PlaceFrame() {
    std::vector<size_t> order;
    for (size_t i = 0; i < layout_.slots.size(); ++i) {
      if (layout_.slots[i].place == Place::kFrame) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return layout_.slots[a].last > layout_.slots[b].last;
    });
    for (size_t i : order) {
      layout_.slots[i].offset = layout_.frame_bytes;
      layout_.frame_bytes += Aligned(layout_.slots[i].bytes);
    }
    if (script_.input_kept)
      layout_.input_offset = layout_.slots[static_cast<size_t>(layout_.input)].offset;
  }

  // Height of the stack over the frame's base at each position.
  std::vector<int64_t> StackHeights() const {
    std::vector<int64_t> heights(script_.lines.size() + 1);
    for (const LocalSlot& slot : layout_.slots) {
      int64_t end = slot.offset + Aligned(slot.bytes);
      if (slot.place == Place::kNextFrame)
        end = layout_.frame_bytes + next_.input_offset + Aligned(slot.bytes);
      else if (slot.place != Place::kFrame)
        continue;
      for (int32_t t = std::max(slot.first, 0); t <= slot.last; ++t)
        heights[static_cast<size_t>(t)] = std::max(heights[static_cast<size_t>(t)], end);
    }
    return heights;
  }

  void PlaceScratch() {
    for (size_t t = 0; t < script_.lines.size(); ++t) {
      const int32_t at = static_cast<int32_t>(t);
      workspace_.push_back(kNoSlot);
      if (script_.lines[t].workspace_bytes == 0) continue;
      workspace_.back() = static_cast<int32_t>(layout_.slots.size());
      layout_.slots.push_back({.place = Place::kWorkspace,
                               .bytes = script_.lines[t].workspace_bytes,
                               .first = at,
                               .last = at});
    }
    const std::vector<int64_t> heights = StackHeights();
    std::vector<Interval> intervals;
    std::vector<size_t> slots;
    for (size_t i = 0; i < layout_.slots.size(); ++i) {
      const LocalSlot& slot = layout_.slots[i];
      if (slot.place == Place::kFrame || slot.place == Place::kNextFrame) continue;
      const int32_t first = std::max(slot.first, 0);
      const int64_t floor =
          *std::max_element(heights.begin() + first, heights.begin() + slot.last + 1);
      intervals.push_back({.first = first,
                           .last = slot.last,
                           .bytes = Aligned(slot.bytes),
                           .floor = floor,
                           .pinned = slot.place == Place::kCarry});
      slots.push_back(i);
    }
    const int64_t packed = PackIntervals(intervals, static_cast<int32_t>(script_.lines.size()));
    layout_.peak_bytes = std::max(packed, *std::max_element(heights.begin(), heights.end()));
    for (size_t n = 0; n < slots.size(); ++n)
      layout_.slots[slots[n]].offset = intervals[n].offset + intervals[n].bytes;
  }

  void CopyLines() {
    const auto to_slots = [&](auto& operands) {
      for (int32_t& operand : operands) {
        if (operand != kNoSlot) operand = chain_of_[static_cast<size_t>(operand)];
      }
    };
    for (size_t t = 0; t < script_.lines.size(); ++t) {
      Instruction line = script_.lines[t].instruction;
      to_slots(line.operands.in);
      to_slots(line.operands.out);
      to_slots(line.operands.d_out);
      to_slots(line.operands.d_in);
      line.workspace = workspace_[t];
      layout_.lines.push_back(line);
    }
  }

  const BlockScript& script_;
  const BlockType& type_;
  const NextBlock next_;
  std::vector<int32_t> chain_of_;  // By instance.
  std::vector<Chain> chains_;
  std::vector<int32_t> taken_;      // Chains that an earlier output of this line took.
  std::vector<int32_t> workspace_;  // By line.
  BlockLayout layout_;
};

}  // namespace

absl::StatusOr<BlockLayout> LayOut(const BlockScript& script, const BlockType& type,
                                   NextBlock next) {
  return Layouter(script, type, next).LayOut();
}

}  // namespace snug::program
