// Shapes of known models, as configurations for tests; no weights.
#ifndef TESTS_WORKER_PROGRAM_MODELS_H_
#define TESTS_WORKER_PROGRAM_MODELS_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "worker/program/plan.h"
#include "worker/program/program.h"

namespace snug::program {

struct LlamaSizes {
  int64_t layers, width, heads, kv_heads, mlp_width, vocabulary;
};

inline ModelConfig LlamaShape(const LlamaSizes& sizes) {
  ModelConfig config;
  config.model_type = "llama";
  config.layers = sizes.layers;
  config.width = sizes.width;
  config.heads = sizes.heads;
  config.kv_heads = sizes.kv_heads;
  config.head_width = sizes.width / sizes.heads;
  config.mlp_width = sizes.mlp_width;
  config.vocabulary = sizes.vocabulary;
  return config;
}

// One configuration per family, with every trait of it; few layers, some of which slide.
inline ModelConfig FamilyShape(const std::string& family, const LlamaSizes& sizes) {
  ModelConfig config = LlamaShape(sizes);
  config.model_type = family;
  const bool gemma = family == "gemma2" || family == "gemma3";
  config.activation = gemma ? Activation::kGeluTanh : Activation::kSilu;
  config.qkv_bias = family == "qwen2";
  config.output_bias = config.mlp_bias = family == "biased";
  config.head_norms = family == "qwen3" || family == "gemma3";
  config.post_norms = config.unit_offset_norms = config.tied_embeddings = gemma;
  config.fused_projections = family == "phi3";
  if (gemma) config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  if (gemma) config.query_scalar = 3.0 * static_cast<double>(config.head_width);
  if (family == "phi3") config.rotary_share = 0.5;
  if (family == "gemma3") config.local_rope_theta = 10.0;
  if (family == "gemma2") config.attention_softcap = 2.0;
  if (family == "gemma2") config.logit_softcap = 3.0;
  if (family == "qwen3" || family == "biased") return config;
  config.window = 3;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    config.sliding.push_back(!gemma || layer % 2 == 0);
  return config;
}

// BERT, or RoBERTa, with dropout behind every half.
inline ModelConfig EncoderShape(const std::string& family, const LlamaSizes& sizes) {
  ModelConfig config = LlamaShape(sizes);
  config.model_type = family;
  config.encoder = true;
  config.pools = family == "bert";
  config.token_types = 2;
  config.first_position = family == "bert" ? 0 : 2;
  config.max_positions = 60;
  config.activation = Activation::kGelu;
  config.hidden_dropout = config.classifier_dropout = 0.1;
  config.task = Task::kSequenceClassification;
  config.labels = 4;
  return config;
}

// T5 of v1.0 or v1.1, with dropout behind every half; the last `decoder_layers` are the decoder's.
inline ModelConfig T5Shape(bool gated, const LlamaSizes& sizes, int64_t decoder_layers) {
  ModelConfig config = LlamaShape(sizes);
  config.model_type = "t5";
  config.decoder_layers = decoder_layers;
  config.distances = {.buckets = 6, .farthest = 4};
  config.gated_mlp = gated;
  config.activation = gated ? Activation::kGeluTanh : Activation::kRelu;
  config.tied_embeddings = !gated;
  config.head_scale = gated ? 1.0 : 1.0 / std::sqrt(static_cast<double>(sizes.width));
  config.query_scalar = 1.0;
  config.hidden_dropout = 0.1;
  config.task = Task::kSeq2SeqLm;
  return config;
}

// ViT, or DeiT, of images of 2 x 2 patches.
inline ModelConfig ImageShape(const std::string& family, const LlamaSizes& sizes) {
  ModelConfig config = EncoderShape(family, sizes);
  config.task = Task::kImageClassification;
  config.pools = false;
  config.token_types = config.first_position = 0;
  config.vocabulary = 1;
  config.image_size = 4;
  config.patch_size = 2;
  config.image_channels = 3;
  config.distilled = family == "deit";
  config.max_positions = config.tokens_of_image();
  config.qkv_bias = true;
  config.norm_epsilon = 1e-12;
  return config;
}

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

// A stash drawn for every value of a layer, of the first `stashes` that there are, `recipes`
// different draws per block type. What a layer is handed is kept, or, in `segments`, drawn as well:
// then what is run again reaches over blocks.
inline Plan RandomPlan(const Program& program, int recipes, std::mt19937& random,
                       bool segments = false, size_t stashes = 2) {
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
        stash = {kAllStashes[random() % stashes], static_cast<int32_t>(1 + random() % 4)};
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
