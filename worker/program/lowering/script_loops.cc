#include <algorithm>

#include "worker/program/lowering/script_writer.h"

namespace snug::program {

void ScriptWriter::BeginLoop(const Loop& loop, Direction direction, bool recomputed) {
  Line head;
  head.kind = Instruction::Kind::kLoop;
  head.direction = direction;
  head.recomputed = recomputed;
  head.block = NodeAt(loop.nodes.front()).block;
  const int64_t rows = options_.key.Of(loop.rows);
  head.loop.rows = loop.rows;
  head.loop.rows_of_pass =
      loop.takes_loss ? std::min<int64_t>(options_.rows_of_head(), rows) : RowsOfPass(loop, rows);
  loop_head_ = Now();
  key_ = options_.key.Limited(loop.rows, head.loop.rows_of_pass);
  inner_.assign(graph_.values.size(), kNone);
  Push(head);
}

void ScriptWriter::EndLoop() {
  const int32_t last = Now() - 1;
  for (int32_t t = loop_head_ + 1; t <= last; ++t) {
    script_.lines[static_cast<size_t>(t)].operands.ForEach([&](Operand& operand) {
      if (!operand || operand.of_pass) return;
      At(operand.slot).last = last;
    });
    for (int32_t gradient : script_.lines[static_cast<size_t>(t)].gradients) {
      if (gradient != kNoSlot) At(gradient).last = last;
    }
  }
  script_.lines[static_cast<size_t>(loop_head_)].loop.lines = last - loop_head_;
  loop_head_ = kNone;
  key_ = options_.key;
}

void ScriptWriter::RunLoopForward(const Loop& loop) {
  if (options_.training && loop.takes_loss) return;  // Its backward does.
  BeginLoop(loop, Direction::kForward, /*recomputed=*/false);
  for (int32_t n : loop.nodes) RunForward(n, forward_, /*recomputed=*/false);
  EndLoop();
  for (int32_t n : loop.nodes) PackOutputs(n);
}

void ScriptWriter::RunLoopAgain(const Loop& loop) {
  std::vector<bool> runs(loop.nodes.size());
  std::vector<bool> read(graph_.values.size());
  for (size_t i = loop.nodes.size(); i-- > 0;) {
    const Node& node = NodeAt(loop.nodes[i]);
    for (int32_t output : node.outputs())
      runs[i] =
          runs[i] || IsMadeAgain(output) || (IsInner(output) && read[static_cast<size_t>(output)]);
    if (!runs[i]) continue;
    for (int32_t input : node.inputs()) read[static_cast<size_t>(input)] = true;
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i]) continue;
    for (int32_t input : NodeAt(loop.nodes[i]).inputs()) {
      const bool made_here = IsMadeAgain(input) && IsMadeIn(loop, input);
      if (!IsInner(input) && !made_here) Materialise(input);
    }
  }
  BeginLoop(loop, Direction::kForward, /*recomputed=*/true);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i]) RunForward(loop.nodes[i], again_, /*recomputed=*/true);
  }
  EndLoop();
}

bool ScriptWriter::IsMadeAgain(int32_t value) const {
  const auto v = static_cast<size_t>(value);
  return demand_.touched[v] && !demand_.kept[v] && !demand_.formed[v] && !IsInner(value);
}

bool ScriptWriter::IsMadeIn(const Loop& loop, int32_t value) const {
  const int32_t producer = ValueAt(value).producer;
  return std::find(loop.nodes.begin(), loop.nodes.end(), producer) != loop.nodes.end();
}

std::vector<int32_t> ScriptWriter::NeededByLoop(const Loop& loop) const {
  std::vector<int32_t> needed;
  for (int32_t n : loop.nodes) {
    const Node& node = NodeAt(n);
    if (!node.backward) continue;
    ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
      if (output || !TakesFormOf(node, i)) needed.push_back(value);
    });
  }
  // What is made in the body is made of what its ops read.
  std::vector<bool> seen(graph_.values.size());
  for (size_t next = 0; next < needed.size(); ++next) {
    const int32_t value = needed[next];
    if (seen[Index(value)] || !IsInner(value)) continue;
    seen[Index(value)] = true;
    const std::span<const int32_t> inputs = NodeAt(ValueAt(value).producer).inputs();
    needed.insert(needed.end(), inputs.begin(), inputs.end());
  }
  return needed;
}

void ScriptWriter::RunLoopBackward(const Loop& loop) {
  if (std::none_of(loop.nodes.begin(), loop.nodes.end(),
                   [this](int32_t n) { return NodeAt(n).backward; }))
    return;
  for (int32_t value : NeededByLoop(loop)) {
    if (!IsInner(value)) Materialise(value);
  }
  BeginLoop(loop, Direction::kBackward, /*recomputed=*/false);
  for (size_t i = loop.nodes.size(); i-- > 0;) {
    if (NodeAt(loop.nodes[i]).backward) RunBackward(NodeAt(loop.nodes[i]));
  }
  EndLoop();
  for (int32_t n : loop.nodes) EndGradients(NodeAt(n));
}

}  // namespace snug::program
