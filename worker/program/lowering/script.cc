#include "worker/program/lowering/script.h"

#include <algorithm>
#include <utility>

#include "worker/program/lowering/script_writer.h"

namespace snug::program {

ScriptWriter::ScriptWriter(const Program& program, const PlannedGraph& planned,
                           const LowerOptions& options)
    : program_(program),
      graph_(planned.graph),
      options_(options),
      stashes_(planned.stashes),
      loops_(planned.loops),
      ahead_(planned.graph.first_node.size()),
      key_(options.key),
      forward_(graph_.values.size(), kNone),
      forms_(graph_.values.size()),
      again_(graph_.values.size(), kNone),
      gradient_(graph_.values.size(), kNone) {
  if (options.training) {
    demand_ = DemandOf(graph_, stashes_, loops_);
    CountWriters();
    for (size_t v = 0; v < stashes_.size(); ++v)
      if (stashes_[v].ahead) ahead_[Index(graph_.values[v].block)] = true;
  } else {
    demand_.kept.resize(graph_.values.size());
    demand_.formed.resize(graph_.values.size());
  }
}

Script ScriptWriter::Write() {
  const size_t nodes = graph_.nodes.size();
  script_.lines.reserve(options_.training ? 3 * nodes : nodes);
  script_.needs.reserve(script_.lines.capacity());
  script_.instances.reserve(options_.training ? 5 * nodes : 2 * nodes);
  const auto blocks = static_cast<int32_t>(program_.blocks.size());
  for (int32_t b = 0; b < blocks; ++b) {
    BeginPass(b);
    for (const Step& step : loops_.steps_of(b)) RunStepForward(step);
  }
  for (int32_t b = blocks; options_.training && b-- > 0;) {
    BeginPass(b);
    const std::span<const Step> steps = loops_.steps_of(b);
    for (size_t i = steps.size(); i-- > 0;) RunStepBackward(steps[i]);
  }
  BeginPass(blocks);
  return std::move(script_);
}

void ScriptWriter::BeginPass(int32_t block) {
  block_ = block;
  if (script_.passes.empty() || script_.passes.back() != Now()) script_.passes.push_back(Now());
}

void ScriptWriter::RunStepForward(const Step& step) {
  if (step.loop != kNone) return RunLoopForward(LoopAt(step.loop));
  RunForward(step.node, forward_, /*recomputed=*/false);
  PackOutputs(step.node);
}

void ScriptWriter::RunStepBackward(const Step& step) {
  if (step.loop != kNone) return RunLoopBackward(LoopAt(step.loop));
  if (!NodeAt(step.node).backward) return;
  InvertInput(step.node);
  RunBackward(NodeAt(step.node));
  EndGradients(NodeAt(step.node));
}

void ScriptWriter::RunForward(int32_t n, std::vector<int32_t>& instances, bool recomputed) {
  const Node& node = NodeAt(n);
  Line line = NewLine(node, Direction::kForward);
  line.recomputed = recomputed;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const int32_t value = node.inputs()[i];
    const auto v = static_cast<size_t>(value);
    const int32_t instance = IsInner(value) ? inner_[v]
                             : recomputed   ? InBackward(value)
                                            : forward_[v];
    line.operands.in[i] = Read(value, instance);
  }
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const int32_t value = node.outputs()[i];
    const auto v = static_cast<size_t>(value);
    // What an op gives beside that for which it runs again is dropped.
    const bool dropped = loop_head_ != kNone && recomputed && !IsMadeAgain(value);
    const Operand out = line.operands.out[i] =
        Fresh(line, OperandOf(value), IsInner(value) || dropped);
    if (IsInner(value)) {
      inner_[v] = out.slot;
    } else if (!dropped) {
      instances[v] = out.slot;
    }
    At(out.slot).kept = !recomputed && demand_.kept[v];
  }
  if (!recomputed) WriteFormsTaken(line, node);
  Finish(line, node);
}

void ScriptWriter::RunBackward(const Node& node) {
  const OpRow& row = RowOf(node.op->code);
  if (row.passes_gradient != 0) return PassGradientOn(node, row);
  ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
    if (output || !TakesFormOf(node, i)) Materialise(value);
  });
  Line line = NewLine(node, Direction::kBackward);
  BeginGradients(line, node);
  Operands& operands = line.operands;
  ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
    const bool form = !output && TakesFormOf(node, i);
    (output ? operands.out[i] : operands.in[i]) =
        form ? ReadForm(value) : Read(value, InBackward(value));
  });
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    int32_t& arrived = gradient_[static_cast<size_t>(node.outputs()[i])];
    if (arrived == kNone) continue;
    operands.d_out[i] = Read(GradientOf(node.outputs()[i]), arrived);
    arrived = kNone;
  }
  std::vector<std::pair<int32_t, int32_t>> sums;  // A value, its other share.
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if ((node.wanted.inputs >> i & 1) != 0) WantInputGradient(line, node, i, sums);
  }
  Finish(line, node);
  for (const auto& [value, share] : sums) AddGradients(node, value, share);
}

void ScriptWriter::Materialise(int32_t value) {
  const auto v = static_cast<size_t>(value);
  if (demand_.kept[v] || (IsInner(value) ? inner_ : again_)[v] != kNone) return;
  if (demand_.formed[v]) return Unpack(value);
  if (IsByInverse(ValueAt(value), stashes_[v])) return Invert(value);
  const int32_t producer = ValueAt(value).producer;
  if (!IsInner(value) && LoopOf(producer) != kNone) return RunLoopAgain(LoopAt(LoopOf(producer)));
  for (int32_t input : NodeAt(producer).inputs()) Materialise(input);
  RunForward(producer, again_, /*recomputed=*/true);
}

void ScriptWriter::Invert(int32_t value) {
  const Node& reader = NodeAt(ValueAt(value).inverter);
  Node inverse;
  inverse.op = &InverseOf(*reader.op);
  inverse.input_values = reader.input_values;
  inverse.input_values[0] = reader.outputs()[0];
  inverse.output_values = {value, kNone};
  for (int32_t input : inverse.inputs()) Materialise(input);
  Line line = NewLine(reader, Direction::kForward);
  line.op = inverse.op;
  line.recomputed = true;
  for (size_t i = 0; i < inverse.inputs().size(); ++i)
    line.operands.in[i] = Read(inverse.inputs()[i], InBackward(inverse.inputs()[i]));
  line.operands.out[0] = Fresh(line, OperandOf(value), /*of_pass=*/false);
  again_[Index(value)] = line.operands.out[0].slot;
  Finish(line, inverse);
}

void ScriptWriter::InvertInput(int32_t n) {
  if (!RowOf(OpOf(n).code).inverse.has_value()) return;
  const int32_t value = NodeAt(n).inputs()[0];
  const bool here = IsByInverse(ValueAt(value), stashes_[Index(value)]) &&
                    ValueAt(value).inverter == n && demand_.touched[Index(value)];
  if (here) Materialise(value);
}

int32_t ScriptWriter::InBackward(int32_t value) {
  const auto v = static_cast<size_t>(value);
  if (IsInner(value)) return inner_[v];
  return demand_.kept[v] ? forward_[v] : again_[v];
}

Line ScriptWriter::NewLine(const Node& node, Direction direction) {
  Line line;
  line.direction = direction;
  line.block = node.block;
  line.op_index = node.op_index;
  line.op = node.op;
  line.parameters = node.parameters;
  if (direction == Direction::kBackward) line.wanted = node.wanted;
  return line;
}

Operand ScriptWriter::OperandOf(int32_t v) const {
  const Value& value = *ValueAt(v).value;
  return {.width = static_cast<int32_t>(value.width), .rows = value.rows, .dtype = value.dtype};
}

int32_t ScriptWriter::AddInstance(const Operand& shape) {
  script_.instances.push_back(
      {.bytes = shape.bytes(shape.of_pass ? key_ : options_.key),
       // What goes out of a loop is there before it: each pass writes rows of it.
       .birth = loop_head_ == kNone || shape.of_pass ? Now() : loop_head_,
       .last = Now(),
       .of_pass = shape.of_pass});
  return static_cast<int32_t>(script_.instances.size()) - 1;
}

Operand ScriptWriter::GradientOf(int32_t v) const {
  Operand operand = OperandOf(v);
  if (operand.dtype == DType::kFixed) operand.dtype = program_.compute;
  return operand;
}

Operand ScriptWriter::Read(Operand operand, int32_t instance) {
  At(instance).last = Now();
  operand.slot = instance;
  operand.of_pass = At(instance).of_pass;
  return operand;
}

Operand ScriptWriter::Fresh(Line& line, Operand operand, bool of_pass) {
  operand.of_pass = of_pass;
  operand.slot = AddInstance(operand);
  *std::find(line.needs.fresh.begin(), line.needs.fresh.end(), kNone) = operand.slot;
  return operand;
}

void ScriptWriter::Finish(Line& line, const Node& node) {
  RunShape shape{.op = line.op,
                 .direction = line.direction,
                 .wanted = line.wanted,
                 .key = key_,
                 .compute = program_.compute,
                 .vocabulary = program_.config.vocabulary,
                 .cpu = options_.machine.cpu};
  for (size_t i = 0; i < node.inputs().size(); ++i) shape.in[i] = OperandOf(node.inputs()[i]);
  for (size_t i = 0; i < node.outputs().size(); ++i) shape.out[i] = OperandOf(node.outputs()[i]);
  if (line.direction == Direction::kBackward) shape.sampled = line.operands.in[0].share;
  line.needs.workspace_bytes = WorkspaceBytes(shape, options_.machine);
  shape.key = options_.key;  // All passes do the work of all rows.
  shape.passes = Passes();
  line.work = WorkOf(shape);
  CountForms(line, node);
  Push(line);
}

int64_t ScriptWriter::Passes() const {
  if (loop_head_ == kNone) return 1;
  const LoopHead& loop = script_.lines[Index(loop_head_)].loop;
  const int64_t rows = options_.key.Of(loop.rows);
  if (rows == 0) return 1;  // A later stage of one patch has none.
  return (rows + loop.rows_of_pass - 1) / loop.rows_of_pass;
}

void ScriptWriter::Push(const Line& line) {
  script_.lines.push_back(line);
  script_.needs.push_back(line.needs);
  script_.needs.back().may_run_ahead = line.kind == Instruction::Kind::kRun && line.recomputed &&
                                       loop_head_ == kNone && ahead_[Index(block_)];
}

void ScriptWriter::PackOutputs(int32_t n) {
  for (int32_t output : NodeAt(n).outputs()) {
    const auto v = static_cast<size_t>(output);
    if (demand_.formed[v] && !RowOf(stashes_[v].kind).by_reader) Pack(output);
  }
}

void ScriptWriter::Pack(int32_t value) {
  const auto v = static_cast<size_t>(value);
  const SiteStash& stash = stashes_[v];
  Line line = FormLine(value, PackOf(stash), Direction::kForward);
  line.operands.in[0] = Read(value, forward_[v]);
  Operand& form = forms_[v] = FormOf(stash, OperandOf(value));
  form.slot = AddInstance(form);
  At(form.slot).kept = true;
  At(form.slot).on_host = RowOf(stash.kind).region == Region::kHost;
  line.operands.out[0] = form;
  FinishForm(line);
}

void ScriptWriter::Unpack(int32_t value) {
  const auto v = static_cast<size_t>(value);
  const Stash stash = stashes_[v].kind;
  Line line = FormLine(value, UnpackOf(stash), Direction::kForward);
  line.recomputed = true;
  line.operands.in[0] = ReadForm(value);
  line.operands.out[0] = OperandOf(value);
  line.operands.out[0].slot = again_[v] = AddInstance(OperandOf(value));
  FinishForm(line);
}

Line ScriptWriter::FormLine(int32_t value, const Op* op, Direction direction) const {
  Line line;
  line.kind = op == nullptr ? Instruction::Kind::kCopy : Instruction::Kind::kRun;
  line.direction = direction;
  line.op = op;
  line.block = block_;
  line.op_index = NodeAt(ValueAt(value).producer).op_index;
  return line;
}

void ScriptWriter::FinishForm(Line& line) {
  const auto read = static_cast<double>(line.operands.in[0].bytes(options_.key));
  const auto written = static_cast<double>(line.operands.out[0].bytes(options_.key));
  if (line.op == nullptr)
    line.work[line.recomputed ? Limit::kFromHost : Limit::kToHost] = written;
  else
    line.work[Limit::kPasses] = read + written;
  line.work[Limit::kRuns] = 1.0;
  if (line.op != nullptr) {
    RunShape shape{.op = line.op, .key = options_.key, .compute = program_.compute};
    shape.in[0] = line.operands.in[0];
    shape.out[0] = line.operands.out[0];
    line.needs.workspace_bytes = WorkspaceBytes(shape, options_.machine);
  }
  line.needs.fresh[0] = line.operands.out[0].slot;
  Push(line);
}

bool ScriptWriter::TakesFormOf(const Node& node, size_t i) const {
  const auto v = static_cast<size_t>(node.inputs()[i]);
  return node.backward && demand_.formed[v] && TakesForm(*node.op, i, stashes_[v].kind);
}

void ScriptWriter::WriteFormsTaken(Line& line, const Node& node) {
  size_t out = node.outputs().size();
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    const int32_t value = node.inputs()[i];
    const auto v = static_cast<size_t>(value);
    if (!TakesFormOf(node, i) || !RowOf(stashes_[v].kind).by_reader) continue;
    Operand& form = forms_[v] = FormOf(stashes_[v], OperandOf(value), node.op);
    form.slot = AddInstance(form);
    At(form.slot).kept = true;
    *std::find(line.needs.fresh.begin(), line.needs.fresh.end(), kNone) = form.slot;
    line.operands.out[out++] = form;
  }
}

Operand ScriptWriter::ReadForm(int32_t value) {
  const Operand& form = forms_[static_cast<size_t>(value)];
  At(form.slot).last = Now();
  return form;
}

void ScriptWriter::CountForms(Line& line, const Node& node) const {
  const auto bytes = [&](const Operand& operand) {
    return static_cast<double>(operand.bytes(options_.key));
  };
  for (size_t i = node.outputs().size(); i < kMaxOutputs; ++i)
    line.work[Limit::kPasses] += bytes(line.operands.out[i]);
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (line.direction == Direction::kForward || !line.operands.in[i] || !TakesFormOf(node, i))
      continue;
    line.work[Limit::kPasses] += bytes(line.operands.in[i]) - bytes(OperandOf(node.inputs()[i]));
  }
}

Instruction EventLine(Instruction::Kind kind, int16_t event, uint8_t stream,
                      const Instruction& like) {
  Instruction line;
  line.kind = kind;
  line.direction = like.direction;
  line.recomputed = like.recomputed;
  line.stream = stream;
  line.event = event;
  line.block = like.block;
  line.op_index = like.op_index;
  return line;
}

Script ScriptOf(const Program& program, const PlannedGraph& planned, const LowerOptions& options) {
  return ScriptWriter(program, planned, options).Write();
}

}  // namespace snug::program
