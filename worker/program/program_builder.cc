#include "worker/program/program_builder.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/program/released_gradients.h"

namespace snug::program {

std::string ModulePath(const std::string& key) { return key.substr(0, key.rfind('.')); }

absl::Status CheckHeadIsSaved(const ModelConfig& config, const LoraTargets& targets) {
  const bool adapts = !targets.adapters.empty() || !targets.saved.empty();
  const std::string head = HeadPathOf(config);
  if (!config.classifies() || !adapts || targets.saved.contains(head)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("lora.modules_to_save: lacks ", head, ", the head of ", NameOf(config.task),
                   ", which PEFT trains whole beside every such adapter: name it"));
}

ProgramBuilder::ProgramBuilder(const ModelConfig& config, const TrainingMode& mode,
                               LoraTargets targets)
    : mode_(mode), targets_(std::move(targets)) {
  program_.config = config;
  program_.compute = mode.compute;
  program_.moments = mode.moments;
  program_.optimizer_on_host = mode.optimizer_on_host;
}

int ProgramBuilder::AddType(BlockBuilder& builder) {
  slots_.push_back(builder.slots());
  program_.types.push_back(builder.TakeType());
  return static_cast<int>(program_.types.size()) - 1;
}

std::vector<int> ProgramBuilder::AddBlock(int type, int layer, std::vector<int> inputs) {
  Block block{.type = type, .layer = layer, .inputs = std::move(inputs)};
  for (const ParameterSlot& slot : slots_[type]) block.parameters.push_back(Bind(slot, layer));
  for (size_t i = 0; i < program_.types[type].outputs.size(); ++i)
    block.outputs.push_back(program_.borders++);
  program_.blocks.push_back(std::move(block));
  return program_.blocks.back().outputs;
}

Program ProgramBuilder::Take() {
  if (mode_.release_gradients) ReleaseGradients(program_);
  return std::move(program_);
}

int ProgramBuilder::Bind(const ParameterSlot& slot, int layer) {
  const bool whole = layer < 0 || slot.shared;
  std::string key = slot.key, module = slot.module_key.empty() ? slot.key : slot.module_key;
  if (!whole) {
    key = LayerPrefix(program_.config, layer) + key;
    module = LayerModules(program_.config, layer) + module;
  }
  if (slot.adapter) key = module = AdapterKey(module, slot.up);
  const auto [it, inserted] = index_.try_emplace(key, static_cast<int>(program_.parameters.size()));
  if (inserted) {
    const bool of_head = absl::StartsWith(key, absl::StrCat(kClassifierPath, "."));
    const bool saved =
        !slot.adapter && targets_.saved.contains(of_head ? kClassifierPath : ModulePath(module));
    const bool trainable = slot.adapter || saved || !mode_.lora;
    program_.parameters.push_back({.key = key,
                                   .module_key = module == key ? "" : module,
                                   .shape = slot.shape,
                                   .dtype = slot.adapter ? DType::kF32 : mode_.compute,
                                   .adapter = slot.adapter,
                                   .saved = saved,
                                   .trainable = trainable,
                                   .decay = slot.decay});
  }
  return it->second;
}

}  // namespace snug::program
