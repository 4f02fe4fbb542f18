// A program with its blocks strung together at their borders: every op and every value of the step
// once, in the order in which they run, and the gradients that its backward computes. Everything
// behind this file knows values alone; blocks are left as places in the plan.
#ifndef WORKER_PROGRAM_LOWERING_GRAPH_H_
#define WORKER_PROGRAM_LOWERING_GRAPH_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/op_table.h"
#include "worker/program/program.h"

namespace snug::program {

struct Node {
  const Op* op = nullptr;
  int32_t block = 0;
  int32_t op_index = 0;  // In its block's type.
  // Values of the graph, parameters of the program.
  std::array<int32_t, kMaxInputs> input_values;
  std::array<int32_t, kMaxOutputs> output_values;
  std::array<int32_t, kMaxOpParameters> parameters;
  Wanted wanted;          // What its backward gives.
  bool backward = false;  // A gradient arrives and something behind it is wanted.

  std::span<const int32_t> inputs() const { return {input_values.data(), op->inputs.size()}; }
  std::span<const int32_t> outputs() const { return {output_values.data(), op->outputs.size()}; }
};

inline constexpr int32_t kNone = -1;

struct GraphValue {
  const Value* value = nullptr;
  int32_t producer = kNone;  // The node that gives it.
  int32_t inverter = kNone;  // The last node whose inverse makes it again of what it gave.
  // Where a plan decides on it: the block that makes it, or, of a border, the one that reads it
  // (the first layer that does); and the value's number there.
  int32_t block = 0;
  int32_t index = 0;
  bool required = false;  // Something trained lies before it: its gradient is wanted,
  bool arrives = false;   // and some backward gives it.
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<GraphValue> values;
  std::vector<int32_t> first_node;  // By block, and one more: its nodes are [b, b + 1).
};

// Errors: an op with more operands than an instruction holds, a border that no earlier block gives,
// an op that takes the loss and is not the end of its block.
absl::StatusOr<Graph> GraphOf(const Program& program);

// The values that a node's backward reads: calls visit(value, operand number, is an output).
template <typename Visit>
void ForEachNeed(const Node& node, const Visit& visit) {
  const uint32_t needs = RowOf(node.op->code).needs(node.wanted);
  for (size_t i = 0; i < node.op->inputs.size(); ++i) {
    if ((needs >> i & 1) != 0) visit(node.input_values[i], i, false);
  }
  for (size_t i = 0; i < node.op->outputs.size(); ++i) {
    if ((needs & kNeedsOutput << i) != 0) visit(node.output_values[i], i, true);
  }
}

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_GRAPH_H_
