#include "worker/program/planning/block_cost.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/program/lowering/demand.h"
#include "worker/program/lowering/graph.h"
#include "worker/program/lowering/loops.h"
#include "worker/program/stash.h"

namespace snug::program {
namespace {

// The blocks of a program that are named, as a program of their own.
Program ChainOf(const Program& program, const std::vector<int>& blocks) {
  Program chain;
  chain.config = program.config;
  chain.compute = program.compute;
  chain.types = program.types;
  chain.borders = static_cast<int>(blocks.size());
  std::map<int, int> parameters;  // The program's -> the chain's.
  int layers = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block block = program.blocks[static_cast<size_t>(blocks[i])];
    if (block.layer >= 0) block.layer = layers++;
    for (int& border : block.inputs) border = static_cast<int>(i) - 1;
    for (int& border : block.outputs) border = static_cast<int>(i);
    for (int& index : block.parameters) {
      const auto [it, is_new] =
          parameters.try_emplace(index, static_cast<int>(chain.parameters.size()));
      if (is_new) chain.parameters.push_back(program.parameters[static_cast<size_t>(index)]);
      index = it->second;
    }
    chain.blocks.push_back(std::move(block));
  }
  chain.config.layers = layers;
  return chain;
}

// Instructions of a block in one direction: [first, end).
struct Pass {
  int32_t first = 0, end = 0;
  bool empty() const { return first == end; }
};

Pass PassOf(const Tape& tape, size_t block, Direction direction) {
  Pass pass;
  const auto forward_end = static_cast<int32_t>(tape.instructions.size());
  bool backward = false;
  for (int32_t t = 0; t < forward_end; ++t) {
    const Instruction& line = tape.instructions[static_cast<size_t>(t)];
    backward = backward || line.direction == Direction::kBackward;
    const bool here =
        static_cast<size_t>(line.block) == block && (direction == Direction::kBackward) == backward;
    if (!here) continue;
    if (pass.empty()) pass.first = t;
    pass.end = t + 1;
  }
  return pass;
}

bool IsOfForward(const Instruction& line) {
  return line.direction == Direction::kForward && !line.recomputed;
}

// Whether the line makes a form of a value that was made just before.
bool WritesForm(const Instruction& line) {
  return IsOfForward(line) && line.op != nullptr && FormMadeBy(*line.op) != Stash::kKeep;
}

// By op of the block's type: seconds of its forward until the op has run.
std::vector<double> EndsOfOps(const Tape& tape, int block, size_t ops, const Machine& machine) {
  std::vector<double> ends(ops, 0.0);
  double now = 0.0;
  for (const Instruction& line : tape.instructions) {
    if (line.block != block || !IsOfForward(line)) continue;
    now += SecondsOf(line.work, machine);
    if (line.kind == Instruction::Kind::kRun) ends[static_cast<size_t>(line.op_index)] = now;
  }
  return ends;
}

// What the end of forward takes where the block behind keeps its input there: it lies over the
// whole frame, and buffers above it.
int64_t LiftedBytes(const BlockPrice& price, int64_t offset) {
  return price.frame_bytes + offset + Aligned(price.output.bytes) + price.over_output_bytes;
}

// Reads the facts of one block off the tape of its chain.
class PriceReader {
 public:
  PriceReader(const Tape& tape, size_t target, const Machine& machine)
      : tape_(tape),
        machine_(machine),
        forward_(PassOf(tape, target, Direction::kForward)),
        backward_(PassOf(tape, target, Direction::kBackward)),
        behind_forward_(PassOf(tape, target + 1, Direction::kForward)),
        behind_backward_(PassOf(tape, target + 1, Direction::kBackward)),
        target_(target) {}

  BlockPrice Read() {
    BlockPrice price;
    for (const Slot& slot : tape_.slots) {
      if (slot.region != Region::kStash) continue;
      if (slot.last >= backward_.end) {  // Of a block before this one.
        base_ += Aligned(slot.bytes);
        stash_base_ += slot.bytes;
      } else if (slot.last >= backward_.first) {
        price.frame_bytes += Aligned(slot.bytes);
        price.stash_bytes += slot.bytes;
      }
    }
    price.input = HandoverOf(KeptInput(forward_, backward_), base_);
    const Slot* output = KeptInput(behind_forward_, behind_backward_);
    FindHeights(output);
    const std::vector<LiveBytes> live = Timeline(tape_);
    price.own_forward_bytes = Height(forward_) - base_;
    price.backward_bytes = Height(backward_) - base_;
    price.forward_bytes = price.own_forward_bytes;
    price.output = HandoverOf(output, base_ + price.frame_bytes);
    if (output != nullptr) {
      const Pass rest = {std::max(forward_.first, output->first), forward_.end};
      price.over_output_bytes = Depth(rest);
      price.gaps_over_output = price.over_output_bytes > MostLive(rest);
      price.forward_bytes = std::max(price.forward_bytes, LiftedBytes(price, price.output.offset));
    }
    price.forward_peak = Highest(live, forward_);
    price.backward_peak = Highest(live, backward_);
    for (const Instruction& line : tape_.instructions) {
      if (OwnerOf(line) != target_) continue;
      const double seconds = SecondsOf(line.work, machine_);
      price.seconds += seconds;
      if (IsOfForward(line)) price.forward_seconds += seconds;
    }
    return price;
  }

 private:
  const Slot& SlotOf(const Operand& operand) const {
    return tape_.slots[static_cast<size_t>(operand.slot)];
  }

  // A form is its block's that holds it, whichever block writes it.
  size_t OwnerOf(const Instruction& line) const {
    const auto last = WritesForm(line) ? static_cast<size_t>(SlotOf(line.operands.out[0]).last)
                                       : static_cast<size_t>(&line - tape_.instructions.data());
    return static_cast<size_t>(tape_.instructions[last].block);
  }

  // A stash that is there when the block begins and dies in its backward.
  const Slot* KeptInput(const Pass& forward, const Pass& backward) const {
    for (const Slot& slot : tape_.slots) {
      const bool of_block = slot.last >= backward.first && slot.last < backward.end;
      if (slot.region == Region::kStash && of_block && slot.first < forward.first) return &slot;
    }
    return nullptr;
  }

  // `base`: of the frame that it is in.
  Handover HandoverOf(const Slot* input, int64_t base) const {
    if (input == nullptr) return {};
    Handover handover{.kept = true, .offset = input->offset - base, .bytes = input->bytes};
    const Instruction& writer = tape_.instructions[static_cast<size_t>(input->first)];
    handover.form = WritesForm(writer);
    if (handover.form && writer.workspace != kNoSlot)
      handover.workspace = tape_.slots[static_cast<size_t>(writer.workspace)].bytes;
    return handover;
  }

  // Of the stack of stashes without one of them, by instruction.
  void FindHeights(const Slot* without) {
    heights_.assign(tape_.instructions.size(), 0);
    for (const Slot& slot : tape_.slots) {
      if (slot.region != Region::kStash || &slot == without) continue;
      for (int32_t t = slot.first; t <= slot.last; ++t) {
        int64_t& height = heights_[static_cast<size_t>(t)];
        height = std::max(height, slot.offset + Aligned(slot.bytes));
      }
    }
  }

  int64_t HighestStack(int32_t first, int32_t last) const {
    return *std::max_element(heights_.begin() + first, heights_.begin() + last + 1);
  }

  // Calls visit(slot, first, last) for each buffer that lives while the pass, or its rest, runs:
  // from which of its instructions to which.
  template <typename Visit>
  void ForEachBuffer(const Pass& pass, const Visit& visit) const {
    for (const Slot& slot : tape_.slots) {
      const int32_t first = std::max(slot.first, pass.first);
      const int32_t last = std::min(slot.last, pass.end - 1);
      if (slot.region != Region::kStash && first <= last) visit(slot, first, last);
    }
  }

  // What lies between the buffer's start and the arena's end.
  int64_t DepthOf(const Slot& slot) const { return tape_.arena_bytes - slot.offset; }

  // What the arena must have for a pass: at least the stack, and the depth of each buffer over the
  // highest stack of its life.
  int64_t Height(const Pass& pass) const {
    if (pass.empty()) return base_;
    int64_t height = HighestStack(pass.first, pass.end - 1);
    ForEachBuffer(pass, [&](const Slot& slot, int32_t first, int32_t last) {
      height = std::max(height, HighestStack(first, last) + DepthOf(slot));
    });
    return height;
  }

  // What buffers take below the arena's end.
  int64_t Depth(const Pass& pass) const {
    int64_t depth = 0;
    ForEachBuffer(
        pass, [&](const Slot& slot, int32_t, int32_t) { depth = std::max(depth, DepthOf(slot)); });
    return depth;
  }

  // What is live of these at once.
  int64_t MostLive(const Pass& pass) const {
    std::vector<int64_t> change(static_cast<size_t>(pass.end - pass.first) + 1);
    ForEachBuffer(pass, [&](const Slot& slot, int32_t first, int32_t last) {
      change[static_cast<size_t>(first - pass.first)] += Aligned(slot.bytes);
      change[static_cast<size_t>(last - pass.first) + 1] -= Aligned(slot.bytes);
    });
    std::partial_sum(change.begin(), change.end(), change.begin());
    return *std::max_element(change.begin(), change.end());
  }

  // The first of the highest instants, over the base.
  LiveBytes Highest(const std::vector<LiveBytes>& live, const Pass& pass) const {
    LiveBytes highest;
    for (int32_t t = pass.first; t < pass.end; ++t) {
      LiveBytes now = live[static_cast<size_t>(t)];
      now.stash -= stash_base_;
      if (now.total() > highest.total()) highest = now;
    }
    return highest;
  }

  const Tape& tape_;
  const Machine& machine_;
  const Pass forward_, backward_, behind_forward_, behind_backward_;
  const size_t target_;
  int64_t base_ = 0, stash_base_ = 0;
  std::vector<int64_t> heights_;
};

}  // namespace

// A layout is the best of some for its pass. Where its input lies higher, each of them is as high
// as it was, or higher: one that was the best and is no higher still is. Nor is any lower than what
// is live over that input.
std::optional<BlockPrice> BlockPrice::WithOutputAt(int64_t offset) const {
  BlockPrice moved = *this;
  if (!output.kept || offset == output.offset) return moved;
  const int64_t lifted = LiftedBytes(*this, offset);
  moved.output.offset = offset;
  moved.forward_bytes = std::max(own_forward_bytes, lifted);
  const bool is_best = offset > output.offset && (lifted <= own_forward_bytes || !gaps_over_output);
  if (!is_best && moved.forward_bytes > backward_bytes) return std::nullopt;
  return moved;
}

bool IsChain(const Program& program) {
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    const Block& block = program.blocks[b];
    const bool first = b == 0, last = b + 1 == program.blocks.size();
    if (block.inputs.size() != (first ? 0u : 1u) || block.outputs.size() != (last ? 0u : 1u))
      return false;
    if (!first && block.inputs[0] != program.blocks[b - 1].outputs[0]) return false;
  }
  return program.blocks.size() >= 2;
}

BlockPricer::BlockPricer(const Program& program, const Place& place, const LowerOptions& options)
    : options_(options) {
  const int head = static_cast<int>(program.blocks.size()) - 1;
  std::vector<int> blocks = {0};
  if (place.block != 0 && place.block != head) blocks.push_back(place.block);
  if (place.behind.has_value()) blocks.push_back(*place.behind);
  blocks.push_back(head);
  chain_ = ChainOf(program, blocks);
  if (place.block == 0) return;
  target_ = 1;
  // The first block stands for all that come before, with parameters of its own: a tied head's are
  // trained or not as they are.
  for (int& index : chain_.blocks[0].parameters) {
    chain_.parameters.push_back(chain_.parameters[static_cast<size_t>(index)]);
    chain_.parameters.back().trainable = place.d_input_wanted;
    index = static_cast<int>(chain_.parameters.size()) - 1;
  }
}

Plan BlockPricer::PlanWith(const Recipe& recipe, const Recipe& behind) const {
  Plan plan;
  plan.recipes = {recipe, behind};
  const bool decides = chain_.blocks[target_].layer >= 0;
  plan.layer_recipe = decides ? std::vector<int>{0, 1} : std::vector<int>{1};
  return plan;
}

absl::StatusOr<BlockPrice> BlockPricer::Price(const Recipe& recipe, const Recipe& behind) const {
  ASSIGN_OR_RETURN(const Tape tape, Lower(chain_, PlanWith(recipe, behind), options_));
  return PriceReader(tape, target_, options_.machine).Read();
}

absl::StatusOr<BlockPricer::Uses> BlockPricer::UsesOfValues() const {
  ASSIGN_OR_RETURN(const Graph graph, GraphOf(chain_));
  const BlockType& type = chain_.type_of(static_cast<int>(target_));
  Uses uses;
  uses.read.resize(type.values.size());
  uses.serving.resize(type.values.size());
  const std::vector<uint32_t> serving = ServingStashes(graph);
  for (size_t v = 0; v < serving.size(); ++v) {
    const GraphValue& place = graph.values[v];
    if (static_cast<size_t>(place.block) == target_)
      uses.serving[static_cast<size_t>(place.index)] = serving[v];
  }
  for (const Node& node : graph.nodes) {
    if (static_cast<size_t>(node.block) != target_ || !node.backward) continue;
    ForEachNeed(node, [&](int32_t, size_t i, bool is_output) {
      uses.read[static_cast<size_t>(is_output ? node.op->outputs[i] : node.op->inputs[i])] = true;
    });
  }
  return uses;
}

absl::StatusOr<std::vector<HeldValue>> BlockPricer::HeldValues(const Recipe& recipe) const {
  const Plan plan = PlanWith(recipe, {});
  const int target = static_cast<int>(target_);
  const BlockType& type = chain_.type_of(target);
  ASSIGN_OR_RETURN(const Graph graph, GraphOf(chain_));
  std::vector<SiteStash> stashes = StashesOf(chain_, graph, plan);
  const Loops loops = LoopsOf(graph, stashes);
  const Demand demand = DemandOf(graph, stashes, loops);
  const std::vector<uint32_t> serving = ServingStashes(graph);
  ASSIGN_OR_RETURN(const Tape tape, Lower(chain_, plan, options_));
  const std::vector<double> ends = EndsOfOps(tape, target, type.ops.size(), options_.machine);
  std::vector<HeldValue> held;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& at = graph.values[v];
    const bool served = (serving[v] >> static_cast<int>(Stash::kOffload) & 1) != 0;
    if (at.block != target || !demand.kept[v] || !served) continue;
    const Node& producer = graph.nodes[static_cast<size_t>(at.producer)];
    const Operand shape{.width = static_cast<int32_t>(at.value->width),
                        .rows = at.value->rows,
                        .dtype = at.value->dtype};
    held.push_back(
        {.value = at.index,
         .bytes = Aligned(shape.bytes(options_.key)),
         .made = producer.block == target ? ends[static_cast<size_t>(producer.op_index)] : 0.0});
  }
  std::stable_sort(held.begin(), held.end(),
                   [](const HeldValue& a, const HeldValue& b) { return a.made < b.made; });
  return held;
}

// Nothing is kept, so that every block lies as it would between any others: one of each type.
absl::StatusOr<int64_t> ForwardArenaBytes(const Program& program, LowerOptions options) {
  options.training = false;
  std::vector<int> blocks;
  std::set<int> met;
  const bool is_chain = IsChain(program);
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    if (!is_chain || met.insert(program.blocks[b].type).second)
      blocks.push_back(static_cast<int>(b));
  }
  const bool whole = blocks.size() == program.blocks.size();
  const Program chain = whole ? program : ChainOf(program, blocks);
  ASSIGN_OR_RETURN(const Tape tape, Lower(chain, RecomputePlan(chain, 0), options));
  return tape.arena_bytes;
}

}  // namespace snug::program
