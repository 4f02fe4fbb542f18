#include <algorithm>
#include <utility>

#include "worker/program/lowering/script_writer.h"

namespace snug::program {
namespace {

// Two gradients of one value meet: x + f, of no block.
const Op& SumOp() {
  static const Op* op = new Op{OpCode::kAdd, "sum of gradients", {0, 1}, {2}, {}, {}};
  return *op;
}

}  // namespace

void ScriptWriter::WantInputGradient(Line& line, const Node& node, size_t i,
                                     std::vector<std::pair<int32_t, int32_t>>& sums) {
  const int32_t value = node.inputs()[i];
  int32_t& present = gradient_[static_cast<size_t>(value)];
  Operand& d_in = line.operands.d_in[i];
  d_in = FreshGradient(line, value);
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

bool ScriptWriter::IsShared(int32_t value) const {
  const int32_t instance = gradient_[static_cast<size_t>(value)];
  return std::any_of(passed_on_.begin(), passed_on_.end(), [&](int32_t other) {
    return other != value && gradient_[static_cast<size_t>(other)] == instance;
  });
}

void ScriptWriter::AddGradients(const Node& node, int32_t value, int32_t share) {
  int32_t& present = gradient_[static_cast<size_t>(value)];
  Line line = NewLine(node, Direction::kForward);
  line.op = &SumOp();
  line.parameters.fill(kNone);
  const Operand shape = GradientOf(value);
  RunShape run{
      .op = &SumOp(), .key = options_.key, .compute = program_.compute, .passes = Passes()};
  run.in[0] = run.in[1] = run.out[0] = shape;
  line.work = WorkOf(run);
  line.operands.in[0] = Read(shape, present);
  line.operands.in[1] = Read(shape, share);
  line.operands.out[0] = FreshGradient(line, value);
  present = line.operands.out[0].slot;
  line.direction = Direction::kBackward;
  Push(line);
}

void ScriptWriter::PassGradientOn(const Node& node, const OpRow& row) {
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

void ScriptWriter::CountWriters() {
  const bool any = std::any_of(program_.parameters.begin(), program_.parameters.end(),
                               [](const Parameter& parameter) { return parameter.released; });
  if (!any) return;
  writers_.resize(program_.parameters.size());
  parameter_gradient_.assign(program_.parameters.size(), kNone);
  for (const Node& node : graph_.nodes)
    ForEachReleased(node, [this](size_t, int32_t parameter) { ++writers_[Index(parameter)]; });
}

void ScriptWriter::BeginGradients(Line& line, const Node& node) {
  for (size_t i = 0; i < node.op->parameters.size(); ++i) {
    if ((node.wanted.parameters >> i & 1) == 0) continue;
    if (begun_.emplace(node.parameters[i], node.op->attributes.row).second)
      line.begins |= static_cast<uint8_t>(1u << i);
  }
  ForEachReleased(node, [&](size_t i, int32_t parameter) {
    int32_t& gradient = parameter_gradient_[Index(parameter)];
    if (gradient == kNone) {
      gradient = static_cast<int32_t>(script_.instances.size());
      const int64_t bytes =
          program_.parameters[Index(parameter)].elements() * static_cast<int64_t>(sizeof(float));
      script_.instances.push_back(
          {.bytes = bytes, .birth = loop_head_ == kNone ? Now() : loop_head_, .last = Now()});
      *std::find(line.needs.fresh.begin(), line.needs.fresh.end(), kNone) = gradient;
    }
    line.gradients[i] = gradient;
    At(gradient).last = Now();
  });
}

void ScriptWriter::EndGradients(const Node& node) {
  ForEachReleased(node, [&](size_t, int32_t parameter) {
    if (--writers_[Index(parameter)] > 0) return;
    Line line = NewLine(node, Direction::kBackward);
    line.kind = Instruction::Kind::kUpdate;
    line.op = nullptr;
    line.parameters.fill(kNone);
    line.parameters[0] = parameter;
    line.wanted = {};
    line.operands.in[0].slot = parameter_gradient_[Index(parameter)];
    At(line.operands.in[0].slot).last = Now();
    // Read once, and what the optimizer holds of it thrice.
    const auto elements = static_cast<double>(program_.parameters[Index(parameter)].elements());
    line.work[Limit::kPasses] = elements * sizeof(float) * 7.0;
    line.work[Limit::kRuns] = 1.0;
    Push(line);
  });
}

}  // namespace snug::program
