// Qwen 2 and 2.5 (biases of q, k and v) and Qwen 3 (norms of q's and k's heads instead). Their
// upper layers slide where use_sliding_window says so.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

void ReadCommon(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("hidden_act", "silu");
  constexpr JsonFields::Range kLayers = {0, 1'000'000};
  if (fields.Boolean("use_sliding_window", false)) config.window = ReadWindow(fields, 4096);
  const int64_t first = fields.Integer("max_window_layers", kLayers, 28);
  ReadLayerTypes(fields, config,
                 [&](int64_t layer) { return config.window > 0 && layer >= first; });
  ReadRope(fields, kCommonRope, config);
}

void ReadQwen2(JsonFields& fields, ModelConfig& config) {
  config.qkv_bias = true;
  ReadCommon(fields, config);
}

void ReadQwen3(JsonFields& fields, ModelConfig& config) {
  config.head_norms = true;
  config.qkv_bias = config.output_bias = fields.Boolean("attention_bias", false);
  ReadCommon(fields, config);
}

}  // namespace

const Family kQwen2 = {.model_type = "qwen2",
                       .architecture = "Qwen2ForCausalLM",
                       .classifier = "Qwen2ForSequenceClassification",
                       .max_positions = 32'768,
                       .kv_heads = 32,
                       .reversible = true,
                       .read = ReadQwen2};

const Family kQwen3 = {.model_type = "qwen3",
                       .architecture = "Qwen3ForCausalLM",
                       .classifier = "Qwen3ForSequenceClassification",
                       .max_positions = 32'768,
                       .kv_heads = 32,
                       .head_width = 128,
                       .reversible = true,
                       .read = ReadQwen3};

}  // namespace snug::program
