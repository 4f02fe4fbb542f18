// A small configuration of each family, of sizes that a test gives.
#ifndef TESTS_WORKER_PROGRAM_SHAPES_H_
#define TESTS_WORKER_PROGRAM_SHAPES_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "worker/program/model_config.h"

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

// BERT, RoBERTa or DistilBERT, with dropout behind every half.
inline ModelConfig EncoderShape(const std::string& family, const LlamaSizes& sizes) {
  ModelConfig config = LlamaShape(sizes);
  config.model_type = family;
  config.encoder = true;
  config.pools = family != "roberta";
  config.token_types = family == "distilbert" ? 0 : 2;
  config.first_position = family == "roberta" ? 2 : 0;
  config.max_positions = 60;
  config.activation = Activation::kGelu;
  config.hidden_dropout = config.classifier_dropout = 0.1;
  config.task = Task::kSequenceClassification;
  config.labels = 4;
  return config;
}

// The same with a head of masked tokens.
inline ModelConfig MaskedShape(const std::string& family, const LlamaSizes& sizes) {
  ModelConfig config = EncoderShape(family, sizes);
  config.task = Task::kMaskedLm;
  config.labels = 0;
  config.tied_embeddings = true;
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

// Swin, of images of 4 x 4 patches in windows of 2 x 2, in two stages, with what passes layers by.
inline ModelConfig WindowedShape(int64_t width) {
  ModelConfig config = ImageShape("vit", {4, 2 * width, 2, 2, 3 * width, 1});
  config.model_type = "swin";
  config.norm_epsilon = 1e-5;
  config.stages = {{.layers = 2, .heads = 1}, {.layers = 1, .heads = 2}};
  config.window_side = 2;
  config.patch_size = 1;
  config.drop_path = 0.3;
  config.head_width = width;
  config.max_positions = config.tokens_of_image();
  return config;
}

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_SHAPES_H_
