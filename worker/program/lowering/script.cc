#include "worker/program/lowering/script.h"

#include <algorithm>
#include <utility>

namespace snug::program {
namespace {

// Two gradients of one value meet: x + f, of no block.
const Op& SumOp() {
  static const Op* op = new Op{OpCode::kAdd, "sum of gradients", {0, 1}, {2}, {}, {}};
  return *op;
}

// A line that is being written.
struct Line : Instruction {
  LineNeeds needs;
};

class ScriptWriter {
 public:
  ScriptWriter(const Program& program, const PlannedGraph& planned, const LowerOptions& options)
      : program_(program),
        graph_(planned.graph),
        options_(options),
        stashes_(planned.stashes),
        loops_(planned.loops),
        key_(options.key),
        forward_(graph_.values.size(), kNone),
        forms_(graph_.values.size()),
        again_(graph_.values.size(), kNone),
        gradient_(graph_.values.size(), kNone) {
    if (options.training) {
      demand_ = DemandOf(graph_, stashes_, loops_);
      CountWriters();
    } else {
      demand_.kept.resize(graph_.values.size());
      demand_.formed.resize(graph_.values.size());
    }
  }

  Script Write() {
    const size_t nodes = graph_.nodes.size();
    script_.lines.reserve(options_.training ? 3 * nodes : nodes);
    script_.needs.reserve(script_.lines.capacity());
    script_.instances.reserve(options_.training ? 5 * nodes : 2 * nodes);
    const auto blocks = static_cast<int32_t>(program_.blocks.size());
    for (int32_t b = 0; b < blocks; ++b) {
      BeginPass();
      for (const Step& step : loops_.steps_of(b)) RunStepForward(step);
    }
    for (int32_t b = blocks; options_.training && b-- > 0;) {
      BeginPass();
      const std::span<const Step> steps = loops_.steps_of(b);
      for (size_t i = steps.size(); i-- > 0;) RunStepBackward(steps[i]);
    }
    BeginPass();
    return std::move(script_);
  }

 private:
  const Node& NodeAt(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  const Op& OpOf(int32_t n) const { return *NodeAt(n).op; }
  const GraphValue& ValueAt(int32_t v) const { return graph_.values[static_cast<size_t>(v)]; }
  int32_t Now() const { return static_cast<int32_t>(script_.lines.size()); }
  void BeginPass() {
    if (script_.passes.empty() || script_.passes.back() != Now()) script_.passes.push_back(Now());
  }
  Instance& At(int32_t instance) { return script_.instances[static_cast<size_t>(instance)]; }

  bool IsInner(int32_t value) const { return loops_.inner[static_cast<size_t>(value)]; }
  int32_t LoopOf(int32_t node) const { return loops_.of_node[static_cast<size_t>(node)]; }

  void RunStepForward(const Step& step) {
    if (step.loop != kNone) return RunLoopForward(LoopAt(step.loop));
    const bool later = options_.training && RowOf(OpOf(step.node).code).forward_in_backward;
    if (later) return;
    RunForward(step.node, forward_, /*recomputed=*/false);
    PackOutputs(step.node);
  }

  void RunStepBackward(const Step& step) {
    if (step.loop != kNone) return RunLoopBackward(LoopAt(step.loop));
    if (!NodeAt(step.node).backward) return;
    BeginGradients(NodeAt(step.node));
    RunBackward(NodeAt(step.node));
    EndGradients(NodeAt(step.node));
  }

  const Loop& LoopAt(int32_t loop) const { return loops_.loops[static_cast<size_t>(loop)]; }

  // Lines from here on to EndLoop are its body.
  void BeginLoop(const Loop& loop, Direction direction, bool recomputed) {
    Line head;
    head.kind = Instruction::Kind::kLoop;
    head.direction = direction;
    head.recomputed = recomputed;
    head.block = NodeAt(loop.nodes.front()).block;
    head.loop.rows = loop.rows;
    head.loop.rows_of_pass = RowsOfPass(loop, options_.key.Of(loop.rows));
    loop_head_ = Now();
    key_ = options_.key.Limited(loop.rows, head.loop.rows_of_pass);
    inner_.assign(graph_.values.size(), kNone);
    script_.lines.push_back(head);
    script_.needs.push_back(head.needs);
  }

  // What comes from outside or goes there lives as long as the loop.
  void EndLoop() {
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

  void RunLoopForward(const Loop& loop) {
    BeginLoop(loop, Direction::kForward, /*recomputed=*/false);
    for (int32_t n : loop.nodes) RunForward(n, forward_, /*recomputed=*/false);
    EndLoop();
    for (int32_t n : loop.nodes) PackOutputs(n);
  }

  // Again, for what is made there and read outside.
  void RunLoopAgain(const Loop& loop) {
    std::vector<bool> runs(loop.nodes.size());
    std::vector<bool> read(graph_.values.size());
    for (size_t i = loop.nodes.size(); i-- > 0;) {
      const Node& node = NodeAt(loop.nodes[i]);
      for (int32_t output : node.outputs())
        runs[i] = runs[i] || IsMadeAgain(output) ||
                  (IsInner(output) && read[static_cast<size_t>(output)]);
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

  // Whether backward has the value from another run of its op, outside of any loop.
  bool IsMadeAgain(int32_t value) const {
    const auto v = static_cast<size_t>(value);
    return demand_.touched[v] && !demand_.kept[v] && !demand_.formed[v] && !IsInner(value);
  }

  bool IsMadeIn(const Loop& loop, int32_t value) const {
    const int32_t producer = ValueAt(value).producer;
    return std::find(loop.nodes.begin(), loop.nodes.end(), producer) != loop.nodes.end();
  }

  void RunLoopBackward(const Loop& loop) {
    // All that the body reads of outside, whether its backward does or what it runs again.
    std::vector<int32_t> needed;
    for (int32_t n : loop.nodes) {
      const Node& node = NodeAt(n);
      if (!node.backward) continue;
      ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
        if (output || !TakesFormOf(node, i)) needed.push_back(value);
      });
    }
    if (std::none_of(loop.nodes.begin(), loop.nodes.end(),
                     [&](int32_t n) { return NodeAt(n).backward; }))
      return;
    std::vector<bool> seen(graph_.values.size());
    while (!needed.empty()) {
      const int32_t value = needed.back();
      needed.pop_back();
      if (seen[static_cast<size_t>(value)]) continue;
      seen[static_cast<size_t>(value)] = true;
      if (!IsInner(value)) {
        Materialise(value);
        continue;
      }
      const std::span<const int32_t> inputs = NodeAt(ValueAt(value).producer).inputs();
      needed.insert(needed.end(), inputs.begin(), inputs.end());
    }
    for (int32_t n : loop.nodes) BeginGradients(NodeAt(n));
    BeginLoop(loop, Direction::kBackward, /*recomputed=*/false);
    for (size_t i = loop.nodes.size(); i-- > 0;) {
      if (NodeAt(loop.nodes[i]).backward) RunBackward(NodeAt(loop.nodes[i]));
    }
    EndLoop();
    for (int32_t n : loop.nodes) EndGradients(NodeAt(n));
  }

  // How many backwards add into each parameter's gradient, of those that are released.
  void CountWriters() {
    const bool any = std::any_of(program_.parameters.begin(), program_.parameters.end(),
                                 [](const Parameter& parameter) { return parameter.released; });
    if (!any) return;
    writers_.resize(program_.parameters.size());
    parameter_gradient_.assign(program_.parameters.size(), kNone);
    for (const Node& node : graph_.nodes)
      ForEachReleased(node, [this](size_t, int32_t parameter) { ++writers_[Index(parameter)]; });
  }

  static size_t Index(int32_t i) { return static_cast<size_t>(i); }

  // Parameters whose gradient the node's backward adds into, where they are released: calls
  // visit(operand number, parameter).
  template <typename Visit>
  void ForEachReleased(const Node& node, const Visit& visit) const {
    if (writers_.empty() || !node.backward) return;
    for (size_t i = 0; i < node.op->parameters.size(); ++i) {
      const bool wanted = (node.wanted.parameters >> i & 1) != 0;
      if (wanted && program_.parameters[Index(node.parameters[i])].released)
        visit(i, node.parameters[i]);
    }
  }

  Line ParameterLine(const Node& node, Instruction::Kind kind, int32_t parameter) const {
    Line line = NewLine(node, Direction::kBackward);
    line.kind = kind;
    line.op = nullptr;
    line.parameters = {parameter, kNone, kNone};
    line.wanted = {};
    const Parameter& released = program_.parameters[Index(parameter)];
    // Read or written once, and what the optimizer holds of it thrice.
    line.work.bytes = static_cast<double>(released.elements()) * sizeof(float) *
                      (kind == Instruction::Kind::kZero ? 1.0 : 7.0);
    return line;
  }

  void Push(const Line& line) {
    script_.lines.push_back(line);
    script_.needs.push_back(line.needs);
  }

  // Before the node's backward or the loop that it lies in: gradients that it is the first to add
  // into.
  void BeginGradients(const Node& node) {
    ForEachReleased(node, [&](size_t, int32_t parameter) {
      int32_t& gradient = parameter_gradient_[Index(parameter)];
      if (gradient != kNone) return;
      gradient = static_cast<int32_t>(script_.instances.size());
      const int64_t bytes =
          program_.parameters[Index(parameter)].elements() * static_cast<int64_t>(sizeof(float));
      script_.instances.push_back({.bytes = bytes, .birth = Now(), .last = Now()});
      Line line = ParameterLine(node, Instruction::Kind::kZero, parameter);
      line.operands.out[0].slot = line.needs.fresh[0] = gradient;
      Push(line);
    });
  }

  // Behind it: those that it was the last to add into.
  void EndGradients(const Node& node) {
    ForEachReleased(node, [&](size_t, int32_t parameter) {
      if (--writers_[Index(parameter)] > 0) return;
      Line line = ParameterLine(node, Instruction::Kind::kUpdate, parameter);
      line.operands.in[0].slot = parameter_gradient_[Index(parameter)];
      At(line.operands.in[0].slot).last = Now();
      Push(line);
    });
  }

  // The shape of a value, and of its gradient.
  Operand OperandOf(int32_t v) const {
    const Value& value = *ValueAt(v).value;
    return {.width = static_cast<int32_t>(value.width), .rows = value.rows, .dtype = value.dtype};
  }

  int32_t AddInstance(const Operand& shape) {
    script_.instances.push_back(
        {.bytes = shape.bytes(shape.of_pass ? key_ : options_.key),
         // What goes out of a loop is there before it: each pass writes rows of it.
         .birth = loop_head_ == kNone || shape.of_pass ? Now() : loop_head_,
         .last = Now(),
         .of_pass = shape.of_pass});
    return static_cast<int32_t>(script_.instances.size()) - 1;
  }

  // `value` as an operand that the line at hand reads, held by `instance`.
  Operand Read(int32_t value, int32_t instance) {
    At(instance).last = Now();
    Operand operand = OperandOf(value);
    operand.slot = instance;
    operand.of_pass = At(instance).of_pass;
    return operand;
  }

  // ... and as one that it writes first.
  Operand Fresh(Line& line, int32_t value) { return Fresh(line, value, IsInner(value)); }
  Operand Fresh(Line& line, int32_t value, bool of_pass) {
    Operand operand = OperandOf(value);
    operand.of_pass = of_pass;
    operand.slot = AddInstance(operand);
    *std::find(line.needs.fresh.begin(), line.needs.fresh.end(), kNone) = operand.slot;
    return operand;
  }

  static Line NewLine(const Node& node, Direction direction) {
    Line line;
    line.direction = direction;
    line.block = node.block;
    line.op_index = node.op_index;
    line.op = node.op;
    line.parameters = node.parameters;
    if (direction == Direction::kBackward) line.wanted = node.wanted;
    return line;
  }

  // What the line costs, by the shapes of its node.
  void Finish(Line& line, const Node& node) {
    RunShape shape{.op = line.op,
                   .direction = line.direction,
                   .wanted = line.wanted,
                   .key = key_,
                   .compute = program_.compute,
                   .vocabulary = program_.config.vocabulary};
    for (size_t i = 0; i < node.inputs().size(); ++i) shape.in[i] = OperandOf(node.inputs()[i]);
    for (size_t i = 0; i < node.outputs().size(); ++i) shape.out[i] = OperandOf(node.outputs()[i]);
    if (line.direction == Direction::kBackward) shape.sampled = line.operands.in[0].share;
    line.needs.workspace_bytes = WorkspaceBytes(shape, options_.machine);
    shape.key = options_.key;  // All passes do the work of all rows.
    line.work = WorkOf(shape);
    CountForms(line, node);
    script_.lines.push_back(line);
    script_.needs.push_back(line.needs);
  }

  // Forms that the line writes beside its outputs, or reads in the place of inputs.
  void CountForms(Line& line, const Node& node) const {
    const auto bytes = [&](const Operand& operand) {
      return static_cast<double>(operand.bytes(options_.key));
    };
    for (size_t i = node.outputs().size(); i < kMaxOutputs; ++i)
      line.work.bytes += bytes(line.operands.out[i]);
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if (line.direction == Direction::kForward || !line.operands.in[i] || !TakesFormOf(node, i))
        continue;
      line.work.bytes += bytes(line.operands.in[i]) - bytes(OperandOf(node.inputs()[i]));
    }
  }

  void RunForward(int32_t n, std::vector<int32_t>& instances, bool recomputed) {
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
      const Operand out = line.operands.out[i] = Fresh(line, value, IsInner(value) || dropped);
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

  void PackOutputs(int32_t n) {
    for (int32_t output : NodeAt(n).outputs()) {
      const auto v = static_cast<size_t>(output);
      if (demand_.formed[v] && !RowOf(stashes_[v].kind).by_reader) Pack(output);
    }
  }

  // Whether `node`'s backward takes a form in the place of its input i.
  bool TakesFormOf(const Node& node, size_t i) const {
    const auto v = static_cast<size_t>(node.inputs()[i]);
    return node.backward && demand_.formed[v] && TakesForm(*node.op, i, stashes_[v].kind);
  }

  // Forms by their reader, behind its outputs.
  void WriteFormsTaken(Line& line, const Node& node) {
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

  // The form of `value`, as an operand that the line at hand reads.
  Operand ReadForm(int32_t value) {
    const Operand& form = forms_[static_cast<size_t>(value)];
    At(form.slot).last = Now();
    return form;
  }

  // The line that makes the form of `value`, or the value of its form.
  Line FormLine(int32_t value, const Op* op, Direction direction) const {
    Line line;
    line.kind = op == nullptr ? Instruction::Kind::kCopy : Instruction::Kind::kRun;
    line.direction = direction;
    line.op = op;
    const Node& producer = NodeAt(ValueAt(value).producer);
    line.block = producer.block;
    line.op_index = producer.op_index;
    return line;
  }

  void FinishForm(Line& line) {
    const auto read = static_cast<double>(line.operands.in[0].bytes(options_.key));
    const auto written = static_cast<double>(line.operands.out[0].bytes(options_.key));
    if (line.op == nullptr && !options_.machine.cpu)
      line.work.copied_bytes = written;
    else
      line.work.bytes = read + written;
    if (line.op != nullptr) {
      RunShape shape{.op = line.op, .key = options_.key, .compute = program_.compute};
      shape.in[0] = line.operands.in[0];
      shape.out[0] = line.operands.out[0];
      line.needs.workspace_bytes = WorkspaceBytes(shape, options_.machine);
    }
    line.needs.fresh[0] = line.operands.out[0].slot;
    script_.lines.push_back(line);
    script_.needs.push_back(line.needs);
  }

  void Pack(int32_t value) {
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

  void Unpack(int32_t value) {
    const auto v = static_cast<size_t>(value);
    const Stash stash = stashes_[v].kind;
    Line line = FormLine(value, UnpackOf(stash), Direction::kForward);
    line.recomputed = true;
    line.operands.in[0] = ReadForm(value);
    line.operands.out[0] = OperandOf(value);
    line.operands.out[0].slot = again_[v] = AddInstance(OperandOf(value));
    FinishForm(line);
  }

  // The instance that holds `value` in backward. Call Materialise first: it may have to run ops.
  int32_t InBackward(int32_t value) {
    const auto v = static_cast<size_t>(value);
    if (IsInner(value)) return inner_[v];
    return demand_.kept[v] ? forward_[v] : again_[v];
  }

  void Materialise(int32_t value) {
    const auto v = static_cast<size_t>(value);
    if (demand_.kept[v] || (IsInner(value) ? inner_ : again_)[v] != kNone) return;
    if (demand_.formed[v]) return Unpack(value);
    const int32_t producer = ValueAt(value).producer;
    if (!IsInner(value) && LoopOf(producer) != kNone) return RunLoopAgain(LoopAt(LoopOf(producer)));
    for (int32_t input : NodeAt(producer).inputs()) Materialise(input);
    RunForward(producer, again_, /*recomputed=*/true);
  }

  void RunBackward(const Node& node) {
    const OpRow& row = RowOf(node.op->code);
    if (row.passes_gradient != 0) return PassGradientOn(node, row);
    ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
      if (output || !TakesFormOf(node, i)) Materialise(value);
    });
    Line line = NewLine(node, Direction::kBackward);
    ForEachReleased(node, [&](size_t i, int32_t parameter) {
      line.gradients[i] = parameter_gradient_[Index(parameter)];
      At(line.gradients[i]).last = Now();
    });
    Operands& operands = line.operands;
    ForEachNeed(node, [&](int32_t value, size_t i, bool output) {
      const bool form = !output && TakesFormOf(node, i);
      (output ? operands.out[i] : operands.in[i]) =
          form ? ReadForm(value) : Read(value, InBackward(value));
    });
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      int32_t& arrived = gradient_[static_cast<size_t>(node.outputs()[i])];
      if (arrived == kNone) continue;
      operands.d_out[i] = Read(node.outputs()[i], arrived);
      arrived = kNone;
    }
    std::vector<std::pair<int32_t, int32_t>> sums;  // A value, its other share.
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if ((node.wanted.inputs >> i & 1) != 0) WantInputGradient(line, node, i, sums);
    }
    Finish(line, node);
    for (const auto& [value, share] : sums) AddGradients(node, value, share);
  }

  void WantInputGradient(Line& line, const Node& node, size_t i,
                         std::vector<std::pair<int32_t, int32_t>>& sums) {
    const int32_t value = node.inputs()[i];
    int32_t& present = gradient_[static_cast<size_t>(value)];
    Operand& d_in = line.operands.d_in[i];
    d_in = Fresh(line, value);
    if (present == kNone) {
      present = d_in.slot;
      return;
    }
    const bool here = std::find(line.needs.fresh.begin(), line.needs.fresh.end(), present) !=
                      line.needs.fresh.end();
    const bool own = !here && !IsShared(value);
    if (own && (RowOf(node.op->code).can_accumulate >> i & 1) != 0) {
      line.accumulate |= static_cast<uint8_t>(1u << i);
      At(present).last = Now();
      At(d_in.slot).adds_into = present;
      // A gradient that was passed into a loop is there for all rows.
      d_in.of_pass = At(d_in.slot).of_pass = At(present).of_pass;
      At(d_in.slot).bytes = At(present).bytes;
      present = d_in.slot;
    } else {
      sums.emplace_back(value, d_in.slot);
    }
  }

  // Whether another value's gradient, still to be read, is the same instance: one that was passed
  // on.
  bool IsShared(int32_t value) const {
    const int32_t instance = gradient_[static_cast<size_t>(value)];
    return std::any_of(passed_on_.begin(), passed_on_.end(), [&](int32_t other) {
      return other != value && gradient_[static_cast<size_t>(other)] == instance;
    });
  }

  // The gradient of `value` becomes what is there and `share`.
  void AddGradients(const Node& node, int32_t value, int32_t share) {
    int32_t& present = gradient_[static_cast<size_t>(value)];
    Line line = NewLine(node, Direction::kForward);
    line.op = &SumOp();
    line.parameters.fill(kNone);
    line.operands.in[0] = Read(value, present);
    line.operands.in[1] = Read(value, share);
    line.operands.out[0] = Fresh(line, value);
    present = line.operands.out[0].slot;
    Node sum;
    sum.op = &SumOp();
    sum.input_values = {value, value, kNone, kNone};
    sum.output_values = {value, kNone};
    Finish(line, sum);
    script_.lines.back().direction = Direction::kBackward;
  }

  // The gradient of each input is that of the output; where it has one already, the two are added.
  void PassGradientOn(const Node& node, const OpRow& row) {
    const int32_t arrived = std::exchange(gradient_[static_cast<size_t>(node.outputs()[0])], kNone);
    std::erase_if(passed_on_,
                  [&](int32_t value) { return gradient_[static_cast<size_t>(value)] == kNone; });
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      if ((node.wanted.inputs & row.passes_gradient & 1u << i) == 0) continue;
      const int32_t value = node.inputs()[i];
      int32_t& present = gradient_[static_cast<size_t>(value)];
      if (present == kNone) {
        present = arrived;
        passed_on_.push_back(value);
      } else {
        AddGradients(node, value, arrived);
      }
    }
  }

  const Program& program_;
  const Graph& graph_;
  const LowerOptions& options_;
  const std::vector<SiteStash>& stashes_;  // By value.
  const Loops& loops_;
  Demand demand_;
  int32_t loop_head_ = kNone;      // Of the loop whose body is being written: its line,
  TapeKey key_;                    // the sizes of one pass,
  std::vector<int32_t> inner_;     // and by value that is made in it: its instance.
  std::vector<int32_t> forward_;   // By value: its instance,
  std::vector<Operand> forms_;     // a form of it that is held,
  std::vector<int32_t> again_;     // its materialisation in backward,
  std::vector<int32_t> gradient_;  // its gradient so far.
  // By parameter, of those that are released: backwards that will still add, and the instance.
  std::vector<int32_t> writers_, parameter_gradient_;
  std::vector<int32_t> passed_on_;  // Values whose gradient may be another's as well.
  Script script_;
};

}  // namespace

Script ScriptOf(const Program& program, const PlannedGraph& planned, const LowerOptions& options) {
  return ScriptWriter(program, planned, options).Write();
}

}  // namespace snug::program
