#include "worker/program/lowering/loops.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace snug::program {
namespace {

constexpr int64_t kFewestRows = 256, kMostRows = 4096, kPasses = 8;

using Readers = std::vector<std::vector<int32_t>>;  // By value: nodes.

Readers ReadersOf(const Graph& graph) {
  Readers readers(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (int32_t value : graph.nodes[n].inputs())
      readers[static_cast<size_t>(value)].push_back(static_cast<int32_t>(n));
  }
  return readers;
}

// Whether the node may stand in a loop over rows of that kind.
bool MayLoop(const Graph& graph, const Node& node, int32_t block, Rows rows) {
  const auto has_rows = [&](int32_t value) {
    return graph.values[static_cast<size_t>(value)].value->rows == rows;
  };
  return node.block == block && RowOf(node.op->code).row_wise &&
         std::all_of(node.inputs().begin(), node.inputs().end(), has_rows) &&
         std::all_of(node.outputs().begin(), node.outputs().end(), has_rows);
}

bool TakesLoss(const Node& node) { return RowOf(node.op->code).takes_loss; }

// What is over the rows that a node of it is over.
Loop EmptyLoop(const Graph& graph, const Node& node) {
  const Rows rows = graph.values[static_cast<size_t>(node.inputs()[0])].value->rows;
  if (!TakesLoss(node)) return {.rows = rows};
  return {.rows = LossRows(*node.op, rows), .takes_loss = true};
}

// Finds the nodes of loops and groups those that share a value of a pass.
class LoopFinder {
 public:
  LoopFinder(const Graph& graph, const std::vector<SiteStash>& stashes,
             const std::vector<bool>& served)
      : graph_(graph),
        stashes_(stashes),
        served_(served),
        readers_(ReadersOf(graph)),
        group_(graph.nodes.size()),
        in_loop_(graph.nodes.size()) {
    std::iota(group_.begin(), group_.end(), 0);
    loops_.inner.resize(graph.values.size());
    loops_.of_node.assign(graph.nodes.size(), kNone);
  }

  Loops Find() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (RowOf(stashes_[v].kind).in_loop) AddInner(static_cast<int32_t>(v));
    }
    while (AddOwnValues()) {
    }
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (in_loop_[n] || TakesLoss(graph_.nodes[n])) AddNode(static_cast<int32_t>(n));
    }
    FindRowsOfPasses();
    return std::move(loops_);
  }

 private:
  const GraphValue& ValueAt(int32_t v) const { return graph_.values[static_cast<size_t>(v)]; }

  int32_t GroupOf(int32_t node) {
    int32_t& group = group_[static_cast<size_t>(node)];
    if (group != node) group = GroupOf(group);
    return group;
  }

  void AddInner(int32_t value) {
    const int32_t producer = ValueAt(value).producer;
    loops_.inner[static_cast<size_t>(value)] = true;
    in_loop_[static_cast<size_t>(producer)] = true;
    for (int32_t reader : readers_[static_cast<size_t>(value)]) {
      in_loop_[static_cast<size_t>(reader)] = true;
      group_[static_cast<size_t>(GroupOf(reader))] = GroupOf(producer);
    }
  }

  // What loops alone know of and nobody keeps is made again with the ops it belongs to, pass by
  // pass: companions, and values that are to be recomputed anyway.
  bool AddOwnValues() {
    bool added = false;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const GraphValue& value = graph_.values[v];
      if (loops_.inner[v] || value.producer == kNone) continue;
      const bool belongs = value.value->companion
                               ? IsCompanionOfLoops(value, readers_[v])
                               : stashes_[v] == Stash::kRecompute && served_[v] &&
                                     IsInLoop(value.producer) && AreInLoops(readers_[v]);
      if (!belongs) continue;
      AddInner(static_cast<int32_t>(v));
      added = true;
    }
    return added;
  }

  bool IsInLoop(int32_t node) const { return in_loop_[static_cast<size_t>(node)]; }
  bool AreInLoops(const std::vector<int32_t>& nodes) const {
    return std::all_of(nodes.begin(), nodes.end(), [this](int32_t n) { return IsInLoop(n); });
  }

  bool IsCompanionOfLoops(const GraphValue& value, const std::vector<int32_t>& readers) const {
    const Node& producer = graph_.nodes[static_cast<size_t>(value.producer)];
    const auto may_loop = [&](int32_t node) {
      return MayLoop(graph_, graph_.nodes[static_cast<size_t>(node)], producer.block,
                     value.value->rows);
    };
    if (!may_loop(value.producer)) return false;
    if (!readers.empty())
      return AreInLoops(readers) && std::all_of(readers.begin(), readers.end(), may_loop);
    const auto inner = [&](int32_t output) {
      return ValueAt(output).value->companion || loops_.inner[static_cast<size_t>(output)];
    };
    return IsInLoop(value.producer) &&
           std::all_of(producer.outputs().begin(), producer.outputs().end(), inner);
  }

  void AddNode(int32_t n) {
    int32_t& loop = loops_.of_node[static_cast<size_t>(GroupOf(n))];
    if (loop == kNone) {
      loop = static_cast<int32_t>(loops_.loops.size());
      loops_.loops.push_back(EmptyLoop(graph_, graph_.nodes[static_cast<size_t>(n)]));
    }
    loops_.of_node[static_cast<size_t>(n)] = loop;
    loops_.loops[static_cast<size_t>(loop)].nodes.push_back(n);
  }

  // The fewest that any of its values asks for.
  void FindRowsOfPasses() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (!loops_.inner[v] || stashes_[v].rows == 0) continue;
      const int32_t loop = loops_.of_node[static_cast<size_t>(graph_.values[v].producer)];
      int32_t& rows = loops_.loops[static_cast<size_t>(loop)].rows_of_pass;
      rows = rows == 0 ? stashes_[v].rows : std::min(rows, stashes_[v].rows);
    }
  }

  const Graph& graph_;
  const std::vector<SiteStash>& stashes_;
  const std::vector<bool>& served_;  // ServedByChunk
  const Readers readers_;
  std::vector<int32_t> group_;  // By node: another of its group, or itself.
  std::vector<bool> in_loop_;   // By node.
  Loops loops_;
};

// The order in which a block's nodes and loops run: as the program has them, but that a loop waits
// for all that its nodes read.
class StepSorter {
 public:
  StepSorter(const Graph& graph, Loops& loops) : graph_(graph), loops_(loops) {
    made_.resize(graph.values.size());
  }

  // Gives the loop that stands in its own way, if one does.
  int32_t Sort() {
    for (size_t b = 0; b + 1 < graph_.first_node.size(); ++b) {
      loops_.first_step.push_back(static_cast<int32_t>(loops_.steps.size()));
      CollectBlock(graph_.first_node[b], graph_.first_node[b + 1]);
      while (!left_.empty()) {
        const auto next = std::find_if(left_.begin(), left_.end(),
                                       [this](const Step& step) { return IsReady(step); });
        if (next == left_.end()) return FirstLoopLeft();
        Run(*next);
        left_.erase(next);
      }
    }
    loops_.first_step.push_back(static_cast<int32_t>(loops_.steps.size()));
    return kNone;
  }

 private:
  std::span<const int32_t> NodesOf(const Step& step) const {
    if (step.loop == kNone) return {&step.node, 1};
    return loops_.loops[static_cast<size_t>(step.loop)].nodes;
  }

  void CollectBlock(int32_t begin, int32_t end) {
    for (int32_t n = begin; n < end; ++n) {
      const int32_t loop = loops_.of_node[static_cast<size_t>(n)];
      if (loop == kNone) {
        left_.push_back({.node = n});
      } else if (loops_.loops[static_cast<size_t>(loop)].nodes.front() == n) {
        left_.push_back({.loop = loop});
      }
    }
  }

  bool IsReady(const Step& step) const {
    for (int32_t n : NodesOf(step)) {
      for (int32_t input : graph_.nodes[static_cast<size_t>(n)].inputs()) {
        const int32_t producer = graph_.values[static_cast<size_t>(input)].producer;
        const bool within = step.loop != kNone && producer != kNone &&
                            loops_.of_node[static_cast<size_t>(producer)] == step.loop;
        if (producer != kNone && !within && !made_[static_cast<size_t>(input)]) return false;
      }
    }
    return true;
  }

  void Run(const Step& step) {
    loops_.steps.push_back(step);
    for (int32_t n : NodesOf(step)) {
      for (int32_t output : graph_.nodes[static_cast<size_t>(n)].outputs())
        made_[static_cast<size_t>(output)] = true;
    }
  }

  int32_t FirstLoopLeft() const {
    const auto loop = std::find_if(left_.begin(), left_.end(),
                                   [](const Step& step) { return step.loop != kNone; });
    return loop->loop;
  }

  const Graph& graph_;
  Loops& loops_;
  std::vector<bool> made_;  // By value.
  std::vector<Step> left_;  // Of the block at hand.
};

// No plan but one with `chunk` has other loops than these.
Loops LoopsOfLosses(const Graph& graph) {
  Loops loops;
  loops.of_node.assign(graph.nodes.size(), kNone);
  loops.inner.resize(graph.values.size());
  loops.first_step = graph.first_node;
  loops.steps.resize(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    loops.steps[n].node = static_cast<int32_t>(n);
    if (!TakesLoss(graph.nodes[n])) continue;
    loops.of_node[n] = static_cast<int32_t>(loops.loops.size());
    loops.loops.push_back(EmptyLoop(graph, graph.nodes[n]));
    loops.loops.back().nodes.push_back(static_cast<int32_t>(n));
    loops.steps[n] = {.loop = loops.of_node[n]};
  }
  return loops;
}

// The rows of a sample are not those of a pass.
void KeepSamplesOfLoops(const Graph& graph, const Loops& loops, std::vector<SiteStash>& stashes) {
  for (const Loop& loop : loops.loops) {
    for (int32_t n : loop.nodes) {
      for (int32_t input : graph.nodes[static_cast<size_t>(n)].inputs()) {
        SiteStash& stash = stashes[static_cast<size_t>(input)];
        if (stash.kind == Stash::kSampled) stash = Stash::kKeep;
      }
    }
  }
}

}  // namespace

std::vector<bool> ServedByChunk(const Graph& graph) {
  const Readers readers = ReadersOf(graph);
  std::vector<bool> served(graph.values.size());
  for (size_t v = 0; v < served.size(); ++v) {
    const GraphValue& value = graph.values[v];
    if (value.producer == kNone || value.value->companion) continue;
    const Node& producer = graph.nodes[static_cast<size_t>(value.producer)];
    const auto may_loop = [&](int32_t node) {
      return MayLoop(graph, graph.nodes[static_cast<size_t>(node)], producer.block,
                     value.value->rows);
    };
    // The gradient of an op that passes it on has to outlive the pass.
    served[v] = may_loop(value.producer) && RowOf(producer.op->code).passes_gradient == 0 &&
                !readers[v].empty() && std::all_of(readers[v].begin(), readers[v].end(), may_loop);
  }
  return served;
}

Loops LoopsOf(const Graph& graph, std::vector<SiteStash>& stashes) {
  const auto in_loop = [](const SiteStash& stash) { return RowOf(stash.kind).in_loop; };
  if (std::none_of(stashes.begin(), stashes.end(), in_loop)) return LoopsOfLosses(graph);
  const std::vector<bool> served = ServedByChunk(graph);
  for (size_t v = 0; v < stashes.size(); ++v) {
    if (in_loop(stashes[v]) && !served[v]) stashes[v] = Stash::kKeep;
  }
  while (true) {
    Loops loops = LoopFinder(graph, stashes, served).Find();
    const int32_t impossible = StepSorter(graph, loops).Sort();
    if (impossible == kNone) {
      KeepSamplesOfLoops(graph, loops, stashes);
      return loops;
    }
    for (int32_t n : loops.loops[static_cast<size_t>(impossible)].nodes) {
      for (int32_t value : graph.nodes[static_cast<size_t>(n)].outputs()) {
        if (in_loop(stashes[static_cast<size_t>(value)]))
          stashes[static_cast<size_t>(value)] = Stash::kKeep;
      }
    }
  }
}

int64_t RowsOfPass(const Loop& loop, int64_t rows) {
  if (loop.rows_of_pass > 0) return std::min<int64_t>(loop.rows_of_pass, rows);
  const auto eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows / kPasses)));
  return std::min(std::clamp(eighth, kFewestRows, kMostRows), rows);
}

}  // namespace snug::program
