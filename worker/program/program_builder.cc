#include "worker/program/program_builder.h"

namespace snug::program {

ProgramBuilder::ProgramBuilder(const ModelConfig& config, const TrainingMode& mode) : mode_(mode) {
  program_.config = config;
  program_.compute = mode.compute;
}

int ProgramBuilder::AddType(BlockBuilder& builder) {
  slots_.push_back(builder.slots());
  program_.types.push_back(builder.TakeType());
  return static_cast<int>(program_.types.size()) - 1;
}

void ProgramBuilder::AddBlock(int type, int layer) {
  Block block{.type = type, .layer = layer, .parameters = {}};
  for (const ParameterSlot& slot : slots_[type]) block.parameters.push_back(Bind(slot, layer));
  program_.blocks.push_back(std::move(block));
}

int ProgramBuilder::Bind(const ParameterSlot& slot, int layer) {
  std::string key = layer < 0 ? slot.key : LayerPrefix(layer) + slot.key;
  if (slot.adapter) key = AdapterKey(key, slot.up);
  const auto [it, inserted] = index_.try_emplace(key, static_cast<int>(program_.parameters.size()));
  if (inserted) {
    program_.parameters.push_back({.key = key,
                                   .shape = slot.shape,
                                   .dtype = slot.adapter ? DType::kF32 : mode_.compute,
                                   .adapter = slot.adapter,
                                   .trainable = slot.adapter || !mode_.lora,
                                   .decay = slot.decay});
  }
  return it->second;
}

}  // namespace snug::program
