// Shapes of known models, as configurations for tests; no weights.
#ifndef TESTS_WORKER_PROGRAM_MODELS_H_
#define TESTS_WORKER_PROGRAM_MODELS_H_

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/program/shapes.h"
#include "worker/program/plan.h"
#include "worker/program/program.h"

namespace snug::program {

inline const std::vector<std::string>& FamilyNames() {
  static const auto* names = new std::vector<std::string>{"mistral", "qwen2", "qwen3", "gemma2",
                                                          "gemma3",  "phi3",  "biased"};
  return *names;
}

inline ModelConfig Llama8B() { return LlamaShape({32, 4096, 32, 8, 14336, 128256}); }
inline ModelConfig Llama125M() { return LlamaShape({12, 768, 12, 12, 2048, 32000}); }
inline ModelConfig Llama70B() { return LlamaShape({80, 8192, 64, 8, 28672, 128256}); }

inline TrainingMode FullMode(DType compute = DType::kF32) { return {.compute = compute}; }

inline TrainingMode LoraMode(std::vector<std::string> targets = {"all-linear"},
                             DType compute = DType::kF32) {
  TrainingMode mode;
  mode.lora = true;
  mode.compute = compute;
  mode.adapter.target_modules = std::move(targets);
  return mode;
}

// The first so many stashes that there are; without loops none of them is chunk.
struct Stashes {
  Stashes(size_t first = 2, bool loops = true) : first(first), loops(loops) {}  // NOLINT: a number.
  size_t first;
  bool loops;
};

// A stash drawn for every value of a layer, `recipes` different draws per block type. What a layer
// is handed is kept, or, in `segments`, drawn as well: then what is run again reaches over blocks.
inline Plan RandomPlan(const Program& program, int recipes, std::mt19937& random,
                       bool segments = false, const Stashes& stashes = {}) {
  Plan plan;
  plan.name = "random";
  std::map<std::pair<int, int>, int> drawn;  // By block type and draw.
  for (int layer = 0; layer < static_cast<int>(program.config.layers); ++layer) {
    const int type =
        std::find_if(program.blocks.begin(), program.blocks.end(), [&](const Block& block) {
          return block.layer == layer;
        })->type;
    const auto [it, inserted] =
        drawn.try_emplace({type, layer % recipes}, static_cast<int>(plan.recipes.size()));
    if (inserted) {
      plan.recipes.emplace_back(program.types[static_cast<size_t>(type)].values.size());
      for (SiteStash& stash : plan.recipes.back())
        stash = {kAllStashes[random() % stashes.first], static_cast<int32_t>(1 + random() % 4)};
      for (SiteStash& stash : plan.recipes.back())
        if (stash.kind == Stash::kChunk && !stashes.loops) stash = Stash::kKeep;
      for (int input : program.types[static_cast<size_t>(type)].inputs) {
        if (!segments) plan.recipes.back()[static_cast<size_t>(input)] = Stash::kKeep;
      }
    }
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_MODELS_H_
