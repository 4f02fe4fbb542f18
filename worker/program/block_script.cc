#include "worker/program/block_script.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/program/gradients.h"

namespace snug::program {
namespace {

constexpr Operands kNoOperands = {{kNoSlot, kNoSlot, kNoSlot, kNoSlot},
                                  {kNoSlot, kNoSlot},
                                  {kNoSlot, kNoSlot},
                                  {kNoSlot, kNoSlot, kNoSlot, kNoSlot}};

class ScriptWriter {
 public:
  explicit ScriptWriter(const BlockRequest& request)
      : request_(request),
        type_(request.program->type_of(request.block)),
        gradients_(GradientsOf(request)),
        forward_(type_.values.size(), -1),
        again_(type_.values.size(), -1),
        gradient_(type_.values.size(), -1) {
    producers_.resize(type_.values.size(), -1);
    for (size_t i = 0; i < type_.ops.size(); ++i) {
      for (int value : type_.ops[i].outputs) producers_[value] = static_cast<int>(i);
    }
    if (request.options->training) {
      demand_ = DemandOf(request);
    } else {
      demand_.kept.resize(type_.values.size());
    }
  }

  BlockScript Write() {
    if (type_.input >= 0) {
      script_.input = forward_[type_.input] = AddInstance(type_.input, kBeforeBlock);
      script_.input_kept = demand_.kept[type_.input];
    }
    for (size_t i = 0; i < type_.ops.size(); ++i) {
      const bool with_loss = type_.ops[i].code == OpCode::kHeadLoss && request_.options->training;
      if (!with_loss) RunForward(static_cast<int>(i), forward_, /*recomputed=*/false);
    }
    script_.forward_lines = static_cast<int32_t>(script_.lines.size());
    if (type_.output >= 0) {
      script_.output = forward_[type_.output];
      script_.instances[script_.output].last = script_.forward_lines - 1;
    }
    if (request_.options->training) WriteBackward();
    return std::move(script_);
  }

 private:
  void WriteBackward() {
    if (type_.output >= 0 && gradients_.required[type_.output]) {
      script_.d_output = gradient_[type_.output] = AddInstance(type_.output, script_.forward_lines);
    }
    for (int i = static_cast<int>(type_.ops.size()) - 1; i >= 0; --i) {
      if (gradients_.backward[i]) RunBackward(i);
    }
    if (type_.input >= 0 && request_.d_input_wanted) {
      script_.d_input = gradient_[type_.input];
      script_.instances[script_.d_input].last = Now() - 1;
    }
  }

  int32_t Now() const { return static_cast<int32_t>(script_.lines.size()); }

  int32_t AddInstance(int value, int32_t birth) {
    const Value& v = type_.values[value];
    script_.instances.push_back({.value = value,
                                 .bytes = request_.options->key.tokens * v.width * SizeOf(v.dtype),
                                 .birth = birth,
                                 .last = birth});
    return static_cast<int32_t>(script_.instances.size()) - 1;
  }

  int32_t Read(int32_t instance) {
    script_.instances[instance].last = Now();
    return instance;
  }

  int32_t Fresh(ScriptLine& line, int value) {
    const int32_t instance = AddInstance(value, Now());
    line.fresh.push_back(instance);
    return instance;
  }

  ScriptLine NewLine(int op, Direction direction, bool recomputed) const {
    ScriptLine line;
    line.instruction.direction = direction;
    line.instruction.recomputed = recomputed;
    line.instruction.block = request_.block;
    line.instruction.op = op;
    line.instruction.operands = kNoOperands;
    return line;
  }

  void Finish(ScriptLine line, Direction direction) {
    RunShape shape{.type = &type_,
                   .op = &type_.ops[line.instruction.op],
                   .direction = direction,
                   .wanted = gradients_.wanted[line.instruction.op],
                   .key = request_.options->key,
                   .compute = request_.program->compute,
                   .vocabulary = request_.program->config.vocabulary};
    line.workspace_bytes = WorkspaceBytes(shape, request_.options->machine);
    script_.lines.push_back(std::move(line));
  }

  void RunForward(int op_index, std::vector<int32_t>& instances, bool recomputed) {
    const Op& op = type_.ops[op_index];
    ScriptLine line = NewLine(op_index, Direction::kForward, recomputed);
    Operands& operands = line.instruction.operands;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const int value = op.inputs[i];
      operands.in[i] = Read(recomputed ? InBackward(value) : instances[value]);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      operands.out[i] = instances[op.outputs[i]] = Fresh(line, op.outputs[i]);
      script_.instances[operands.out[i]].kept = !recomputed && demand_.kept[op.outputs[i]];
    }
    Finish(std::move(line), Direction::kForward);
  }

  // The instance that holds `value` in backward. Call Materialise first: it may have to run ops.
  int32_t InBackward(int value) const {
    return demand_.kept[value] ? forward_[value] : again_[value];
  }

  void Materialise(int value) {
    if (demand_.kept[value] || again_[value] >= 0) return;
    const int op = producers_[value];
    for (int input : type_.ops[op].inputs) Materialise(input);
    RunForward(op, again_, /*recomputed=*/true);
  }

  void RunBackward(int op_index) {
    const Op& op = type_.ops[op_index];
    if (op.code == OpCode::kAdd) return PassGradientOn(op_index);
    const uint32_t needs = RowOf(op.code).needs(gradients_.wanted[op_index]);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (needs >> i & 1) Materialise(op.inputs[i]);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (needs & kNeedsOutput << i) Materialise(op.outputs[i]);
    }
    ScriptLine line = NewLine(op_index, Direction::kBackward, false);
    Operands& operands = line.instruction.operands;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (needs >> i & 1) operands.in[i] = Read(InBackward(op.inputs[i]));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (needs & kNeedsOutput << i) operands.out[i] = Read(InBackward(op.outputs[i]));
      const int32_t d_out = gradient_[op.outputs[i]];
      if (d_out >= 0) operands.d_out[i] = Read(d_out);
    }
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (gradients_.wanted[op_index].inputs >> i & 1) WantInputGradient(line, i);
    }
    Finish(std::move(line), Direction::kBackward);
    for (int value : op.outputs) gradient_[value] = -1;  // Consumed.
  }

  void WantInputGradient(ScriptLine& line, size_t i) {
    const Op& op = type_.ops[line.instruction.op];
    const int value = op.inputs[i];
    if (gradient_[value] < 0) {
      line.instruction.operands.d_in[i] = gradient_[value] = Fresh(line, value);
      return;
    }
    if ((RowOf(op.code).can_accumulate >> i & 1) == 0) {
      script_.error = absl::StrCat("op ", op.name, " cannot add into the gradient of its input ",
                                   type_.values[value].site, ", which others read as well");
    }
    if (IsShared(gradient_[value], value)) script_.error = SharedError(op, value);
    line.instruction.accumulate |= 1u << i;
    const int32_t sum = Fresh(line, value);
    script_.instances[sum].adds_into = Read(gradient_[value]);
    line.instruction.operands.d_in[i] = gradient_[value] = sum;
  }

  // Whether another value's gradient, still to be read, is the same instance (a residual passed it
  // on).
  bool IsShared(int32_t instance, int except) const {
    for (size_t value = 0; value < gradient_.size(); ++value) {
      if (static_cast<int>(value) != except && gradient_[value] == instance) return true;
    }
    return false;
  }

  std::string SharedError(const Op& op, int value) const {
    return absl::StrCat("op ", op.name, " adds into the gradient of ", type_.values[value].site,
                        ", which another value's backward has still to read");
  }

  // y = x + f: both gradients are dy itself; where x has a gradient already, dy is added to it.
  void PassGradientOn(int op_index) {
    const Op& op = type_.ops[op_index];
    const int32_t dy = gradient_[op.outputs[0]];
    gradient_[op.outputs[0]] = -1;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if ((gradients_.wanted[op_index].inputs >> i & 1) == 0) continue;
      int32_t& present = gradient_[op.inputs[i]];
      if (present < 0) {
        present = dy;
        continue;
      }
      ScriptLine line = NewLine(op_index, Direction::kBackward, false);
      line.instruction.operands.in[0] = Read(present);
      line.instruction.operands.in[1] = Read(dy);
      line.instruction.operands.out[0] = present = Fresh(line, op.inputs[i]);
      Finish(std::move(line), Direction::kBackward);
    }
  }

  const BlockRequest& request_;
  const BlockType& type_;
  const BlockGradients gradients_;
  Demand demand_;
  std::vector<int> producers_;
  std::vector<int32_t> forward_;   // By value: its instance,
  std::vector<int32_t> again_;     // its materialisation in backward,
  std::vector<int32_t> gradient_;  // its gradient so far.
  BlockScript script_;
};

}  // namespace

BlockScript ScriptOf(const BlockRequest& request) { return ScriptWriter(request).Write(); }

}  // namespace snug::program
