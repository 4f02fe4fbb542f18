#include "worker/program/gradients.h"

namespace snug::program {
namespace {

bool AnyTrainable(const Program& program, const Block& block, const Op& op) {
  for (int slot : op.parameters) {
    if (program.parameters[block.parameters[slot]].trainable) return true;
  }
  return false;
}

}  // namespace

BlockGradients GradientsOf(const BlockRequest& request) {
  const Program& program = *request.program;
  const Block& block = program.blocks[request.block];
  const BlockType& type = program.types[block.type];
  BlockGradients result;
  result.required.resize(type.values.size());
  if (type.input >= 0) result.required[type.input] = request.d_input_wanted;
  for (const Op& op : type.ops) {
    Wanted wanted;
    wanted.parameters = AnyTrainable(program, block, op);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      if (result.required[op.inputs[i]]) wanted.inputs |= 1u << i;
    }
    const bool any = wanted.inputs != 0 || wanted.parameters;
    for (int value : op.outputs) result.required[value] = any;
    result.wanted.push_back(wanted);
    result.backward.push_back(any);
  }
  return result;
}

}  // namespace snug::program
