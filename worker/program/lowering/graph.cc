#include "worker/program/lowering/graph.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::program {
namespace {

class GraphBuilder {
 public:
  explicit GraphBuilder(const Program& program)
      : program_(program), borders_(static_cast<size_t>(program.borders), kNone) {}

  absl::StatusOr<Graph> Build() {
    for (size_t b = 0; b < program_.blocks.size(); ++b) {
      graph_.first_node.push_back(static_cast<int32_t>(graph_.nodes.size()));
      RETURN_IF_ERROR(AddBlock(static_cast<int32_t>(b)));
    }
    graph_.first_node.push_back(static_cast<int32_t>(graph_.nodes.size()));
    FindRequired();
    FindBackward();
    return std::move(graph_);
  }

 private:
  absl::Status AddBlock(int32_t b) {
    const auto ops = static_cast<int64_t>(program_.type_of(b).ops.size());
    if (b >= kMostBlocks || ops > kMostOps)
      return absl::InternalError(absl::StrCat("block ", b, " has ", ops, " ops: there is room for ",
                                              kMostBlocks, " blocks of ", kMostOps));
    const Block& block = program_.blocks[static_cast<size_t>(b)];
    const BlockType& type = program_.type_of(b);
    if (block.inputs.size() != type.inputs.size() || block.outputs.size() != type.outputs.size())
      return absl::InternalError(
          absl::StrCat("block ", b, " (", type.name, ") has other borders than its type"));
    values_.assign(type.values.size(), kNone);
    for (size_t i = 0; i < type.inputs.size(); ++i) RETURN_IF_ERROR(AddInput(b, i));
    for (size_t v = 0; v < type.values.size(); ++v) {
      if (values_[v] != kNone) continue;
      values_[v] = static_cast<int32_t>(graph_.values.size());
      graph_.values.push_back(
          {.value = &type.values[v], .block = b, .index = static_cast<int32_t>(v)});
    }
    for (size_t i = 0; i < type.ops.size(); ++i)
      RETURN_IF_ERROR(AddNode(b, static_cast<int32_t>(i)));
    for (size_t i = 0; i < type.outputs.size(); ++i) {
      const int32_t value = values_[static_cast<size_t>(type.outputs[i])];
      borders_[static_cast<size_t>(block.outputs[i])] = value;
    }
    return absl::OkStatus();
  }

  absl::Status AddInput(int32_t b, size_t i) {
    const Block& block = program_.blocks[static_cast<size_t>(b)];
    const int32_t value = borders_[static_cast<size_t>(block.inputs[i])];
    if (value == kNone)
      return absl::InternalError(absl::StrCat("block ", b, " reads border ", block.inputs[i],
                                              ", which no block before it gives"));
    const int number = program_.type_of(b).inputs[i];
    values_[static_cast<size_t>(number)] = value;
    GraphValue& border = graph_.values[static_cast<size_t>(value)];
    // The first reader decides, but one in a layer before any other.
    const bool read = border.block > graph_.nodes[static_cast<size_t>(border.producer)].block;
    const bool by_layer = program_.blocks[static_cast<size_t>(border.block)].layer >= 0;
    if (!read || (!by_layer && block.layer >= 0)) {
      border.block = b;
      border.index = number;
    }
    return absl::OkStatus();
  }

  absl::Status AddNode(int32_t b, int32_t op_index) {
    const BlockType& type = program_.type_of(b);
    const Op& op = type.ops[static_cast<size_t>(op_index)];
    if (op.inputs.size() > size_t{kMaxInputs} || op.outputs.size() > size_t{kMaxOutputs} ||
        op.parameters.size() > size_t{kMaxOpParameters})
      return absl::InternalError(
          absl::StrCat("op ", op.name, " has ", op.inputs.size(), " inputs, ", op.outputs.size(),
                       " outputs and ", op.parameters.size(), " parameters; an instruction holds ",
                       kMaxInputs, ", ", kMaxOutputs, " and ", kMaxOpParameters));
    if (RowOf(op.code).takes_loss && (&op != &type.ops.back() || !op.outputs.empty()))
      return absl::InternalError(absl::StrCat("op ", op.name, " of block ", b,
                                              " takes the loss: it has to be the last op there, "
                                              "without outputs"));
    Node node = {.op = &op, .block = b, .op_index = op_index};
    node.parameters.fill(kNone);
    for (size_t i = 0; i < op.inputs.size(); ++i)
      node.input_values[i] = values_[static_cast<size_t>(op.inputs[i])];
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      node.output_values[i] = values_[static_cast<size_t>(op.outputs[i])];
      graph_.values[static_cast<size_t>(node.output_values[i])].producer =
          static_cast<int32_t>(graph_.nodes.size());
    }
    if (RowOf(op.code).inverse.has_value())
      graph_.values[static_cast<size_t>(node.input_values[0])].inverter =
          static_cast<int32_t>(graph_.nodes.size());
    const Block& block = program_.blocks[static_cast<size_t>(b)];
    for (size_t i = 0; i < op.parameters.size(); ++i)
      node.parameters[i] = block.parameters[static_cast<size_t>(op.parameters[i])];
    graph_.nodes.push_back(node);
    return absl::OkStatus();
  }

  void FindRequired() {
    for (Node& node : graph_.nodes) {
      for (size_t i = 0; i < node.op->parameters.size(); ++i) {
        const auto parameter = static_cast<size_t>(node.parameters[i]);
        if (program_.parameters[parameter].trainable) node.wanted.parameters |= 1u << i;
      }
      for (size_t i = 0; i < node.op->inputs.size(); ++i) {
        if (graph_.values[static_cast<size_t>(node.input_values[i])].required)
          node.wanted.inputs |= 1u << i;
      }
      for (int32_t value : node.outputs())
        graph_.values[static_cast<size_t>(value)].required = node.wanted.any();
    }
  }

  // An op whose results nobody reads has no backward.
  void FindBackward() {
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      bool arrives = node->op->outputs.empty();  // The loss.
      for (int32_t value : node->outputs())
        arrives = arrives || graph_.values[static_cast<size_t>(value)].arrives;
      node->backward = arrives && node->wanted.any();
      if (!node->backward) continue;
      for (size_t i = 0; i < node->op->inputs.size(); ++i) {
        if ((node->wanted.inputs >> i & 1) != 0)
          graph_.values[static_cast<size_t>(node->input_values[i])].arrives = true;
      }
    }
  }

  const Program& program_;
  std::vector<int32_t> borders_;  // By number: the graph's value.
  std::vector<int32_t> values_;   // Of the block at hand, by its type's number: the graph's value.
  Graph graph_;
};

}  // namespace

absl::StatusOr<Graph> GraphOf(const Program& program) { return GraphBuilder(program).Build(); }

}  // namespace snug::program
