#include "worker/program/lowering/demand.h"

#include <array>

namespace snug::program {

bool IsByInverse(const GraphValue& value, const SiteStash& stash) {
  return RowOf(stash.kind).by_inverse && value.inverter != kNone;
}

namespace {

class DemandFinder {
 public:
  DemandFinder(const Graph& graph, const std::vector<SiteStash>& stashes, const Loops& loops)
      : graph_(graph), stashes_(stashes), loops_(loops) {
    demand_.kept.resize(graph.values.size());
    demand_.formed.resize(graph.values.size());
    demand_.touched.resize(graph.values.size());
    demand_.rerun.resize(graph.nodes.size());
  }

  Demand Find() {
    const std::vector<int32_t> needed = NeededByBackward();
    for (int32_t value : needed) {
      if (!IsLate(value)) Need(value);
    }
    // Then forms that a backward takes itself: where the value is there anyway, it needs none.
    for (int32_t value : taken_) {
      const auto v = static_cast<size_t>(value);
      if (!demand_.touched[v]) demand_.formed[v] = demand_.touched[v] = true;
    }
    // Companions last: only now it is known which ops are run again.
    for (int32_t value : needed) {
      const auto v = static_cast<size_t>(value);
      demand_.touched[v] = true;
      if (IsLate(value) && !demand_.rerun[static_cast<size_t>(at(value).producer)])
        demand_.kept[v] = true;
    }
    return std::move(demand_);
  }

 private:
  const GraphValue& at(int32_t value) const { return graph_.values[static_cast<size_t>(value)]; }
  // A companion, unless it is a loop's own.
  bool IsLate(int32_t value) const {
    return at(value).value->companion && !loops_.inner[static_cast<size_t>(value)];
  }

  // Values that are needed themselves; those of which a backward takes the form go to taken_.
  std::vector<int32_t> NeededByBackward() {
    std::vector<int32_t> needed;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!node.backward) continue;
      const bool in_loop = loops_.of_node[n] != kNone;
      ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
        const Stash stash = stashes_[static_cast<size_t>(value)].kind;
        // A sample is of all rows, a pass of some.
        const bool whole = stash == Stash::kSampled && in_loop;
        const bool taken = !output && !whole && TakesForm(*node.op, i, stash);
        (taken ? taken_ : needed).push_back(value);
      });
    }
    return needed;
  }

  void Need(int32_t value) {
    const auto v = static_cast<size_t>(value);
    if (demand_.touched[v]) return;
    demand_.touched[v] = true;
    if (loops_.inner[v]) {
      Rerun(at(value).producer);
    } else if (stashes_[v].kind == Stash::kKeep) {
      demand_.kept[v] = true;
    } else if (RowOf(stashes_[v].kind).has_form && !RowOf(stashes_[v].kind).taken) {
      demand_.formed[v] = true;
    } else if (IsByInverse(at(value), stashes_[v])) {
      const Node& reader = graph_.nodes[static_cast<size_t>(at(value).inverter)];
      Need(reader.outputs()[0]);
      for (int32_t input : reader.inputs().subspan(1)) Need(input);
    } else {
      Rerun(at(value).producer);
    }
  }

  void Rerun(int32_t n) {
    if (demand_.rerun[static_cast<size_t>(n)]) return;
    demand_.rerun[static_cast<size_t>(n)] = true;
    for (int32_t input : graph_.nodes[static_cast<size_t>(n)].inputs()) {
      // A companion input (LoRA's za) is made again with the op that reads it.
      if (IsLate(input)) {
        demand_.touched[static_cast<size_t>(input)] = true;
        Rerun(at(input).producer);
      } else {
        Need(input);
      }
    }
  }

  const Graph& graph_;
  const std::vector<SiteStash>& stashes_;
  const Loops& loops_;
  std::vector<int32_t> taken_;
  Demand demand_;
};

// Follows what each value is made again of, until that is there or is the value itself.
class CycleFinder {
 public:
  CycleFinder(const Graph& graph, const std::vector<SiteStash>& stashes)
      : graph_(graph), stashes_(stashes), state_(graph.values.size()) {}

  // A value of a cycle that an inverse makes; kNone: there is no cycle.
  int32_t Find() {
    for (size_t v = 0; v < state_.size(); ++v) {
      if (IsByInverse(graph_.values[v], stashes_[v]) && Follow(static_cast<int32_t>(v)))
        return found_;
    }
    return kNone;
  }

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };

  bool IsThere(int32_t value) const {
    const Stash stash = stashes_[static_cast<size_t>(value)].kind;
    const bool form = RowOf(stash).has_form && !RowOf(stash).taken;
    const bool companion = graph_.values[static_cast<size_t>(value)].value->companion;
    return !companion && (stash == Stash::kKeep || form);
  }

  bool Follow(int32_t value) {
    const auto v = static_cast<size_t>(value);
    if (state_[v] == State::kOpen) return Close(value);
    if (state_[v] == State::kDone || IsThere(value)) return false;
    state_[v] = State::kOpen;
    path_.push_back(value);
    const GraphValue& made = graph_.values[v];
    const bool inverse = IsByInverse(made, stashes_[v]);
    const Node& node = graph_.nodes[static_cast<size_t>(inverse ? made.inverter : made.producer)];
    if (inverse && Follow(node.outputs()[0])) return true;
    for (int32_t input : node.inputs().subspan(inverse ? 1 : 0)) {
      if (Follow(input)) return true;
    }
    path_.pop_back();
    state_[v] = State::kDone;
    return false;
  }

  // Ops alone make no cycle, so that an inverse is part of it.
  bool Close(int32_t value) {
    for (size_t i = path_.size(); i-- > 0;) {
      found_ = path_[i];
      const auto v = static_cast<size_t>(found_);
      if (IsByInverse(graph_.values[v], stashes_[v]) || found_ == value) break;
    }
    return true;
  }

  const Graph& graph_;
  const std::vector<SiteStash>& stashes_;
  std::vector<State> state_;   // By value.
  std::vector<int32_t> path_;  // Values that are open.
  int32_t found_ = kNone;
};

// By block: whether it has an op that an inverse undoes.
std::vector<bool> ReversibleBlocks(const Graph& graph) {
  std::vector<bool> reversible(graph.first_node.size());
  for (const Node& node : graph.nodes) {
    if (RowOf(node.op->code).inverse.has_value())
      reversible[static_cast<size_t>(node.block)] = true;
  }
  return reversible;
}

// Whether a kind that holds neither the value nor a form that backwards take can serve it.
bool ServesByItself(const Graph& graph, const GraphValue& value, const StashRow& row,
                    const std::vector<bool>& reversible) {
  // What no inverse makes is made again within its block.
  if (row.by_inverse)
    return reversible[static_cast<size_t>(value.block)] &&
           (value.inverter != kNone ||
            graph.nodes[static_cast<size_t>(value.producer)].block == value.block);
  // Codes stand for floating-point numbers.
  const bool coded = row.code_bits > 0 && value.value->dtype == DType::kFixed;
  return !(row.has_form && value.value->companion) && !coded;
}

}  // namespace

Demand DemandOf(const Graph& graph, const std::vector<SiteStash>& stashes, const Loops& loops) {
  return DemandFinder(graph, stashes, loops).Find();
}

std::vector<uint32_t> ServingStashes(const Graph& graph) {
  std::vector<std::array<int, kStashes>> taken(graph.values.size());  // By how many needs.
  std::vector<int> needs(graph.values.size());
  for (const Node& node : graph.nodes) {
    if (!node.backward) continue;
    ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
      const auto v = static_cast<size_t>(value);
      ++needs[v];
      for (size_t s = 0; s < kStashes && !output; ++s)
        taken[v][s] += TakesForm(*node.op, i, kAllStashes[s]) ? 1 : 0;
    });
  }
  const std::vector<bool> chunked = ServedByChunk(graph), reversible = ReversibleBlocks(graph);
  std::vector<uint32_t> serving(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {
    for (size_t s = 0; s < kStashes; ++s) {
      const StashRow& row = RowOf(kAllStashes[s]);
      const bool itself = ServesByItself(graph, graph.values[v], row, reversible);
      const bool all = taken[v][s] == needs[v] && (row.by_reader ? needs[v] == 1 : needs[v] > 0);
      const bool serves = row.taken ? all : row.in_loop ? chunked[v] : itself;
      serving[v] |= static_cast<uint32_t>(serves) << s;
    }
  }
  return serving;
}

std::vector<SiteStash> StashesOf(const Program& program, const Graph& graph, const Plan& plan) {
  std::vector<SiteStash> stashes(graph.values.size());
  bool served = true;  // Any value can be kept and run again, but not in any form nor any loop.
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const GraphValue& value = graph.values[v];
    const int layer = program.blocks[static_cast<size_t>(value.block)].layer;
    if (layer < 0) continue;
    const int recipe = plan.layer_recipe[static_cast<size_t>(layer)];
    stashes[v] = plan.recipes[static_cast<size_t>(recipe)][static_cast<size_t>(value.index)];
    const StashRow& row = RowOf(stashes[v].kind);
    served = served && !row.has_form && !row.in_loop && !row.by_inverse;
  }
  if (served) return stashes;
  const std::vector<uint32_t> serving = ServingStashes(graph);
  for (size_t v = 0; v < stashes.size(); ++v) {
    if ((serving[v] >> static_cast<int>(stashes[v].kind) & 1) == 0) stashes[v] = Stash::kKeep;
  }
  while (true) {
    const int32_t of_itself = CycleFinder(graph, stashes).Find();
    if (of_itself == kNone) return stashes;
    stashes[static_cast<size_t>(of_itself)] = Stash::kKeep;
  }
}

}  // namespace snug::program
