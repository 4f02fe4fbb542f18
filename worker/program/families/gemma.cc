// Gemma 2 and the text model of Gemma 3: norms before and after each half, their weights stored
// less one; embeddings times the root of the width; a gate of GELU. Gemma 2 caps scores and logits
// and slides on every other layer; Gemma 3 normalises the heads of q and k and slides on five of
// six, there with rotary angles of their own.
#include <cmath>

#include "worker/program/families/family.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr JsonFields::RealRange kScalars = {1e-3, 1e6};

double ReadSoftcap(JsonFields& fields, const char* name, double absent) {
  if (fields.IsNull(name)) return 0.0;
  return fields.Real(name, kScalars, absent);
}

void ReadCommon(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("hidden_activation", "gelu_pytorch_tanh");
  fields.MustBe("use_bidirectional_attention", false);
  config.activation = Activation::kGeluTanh;
  config.post_norms = config.unit_offset_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  config.query_scalar = fields.Real("query_pre_attn_scalar", kScalars, 256.0);
  config.qkv_bias = config.output_bias = fields.Boolean("attention_bias", false);
  config.window = ReadWindow(fields, 4096);
}

void ReadGemma2(JsonFields& fields, ModelConfig& config) {
  ReadCommon(fields, config);
  config.attention_softcap = ReadSoftcap(fields, "attn_logit_softcapping", 50.0);
  config.logit_softcap = ReadSoftcap(fields, "final_logit_softcapping", 30.0);
  ReadLayerTypes(fields, config, [](int64_t layer) { return layer % 2 == 0; });
  ReadRope(fields, kCommonRope, config);
}

void ReadGemma3(JsonFields& fields, ModelConfig& config) {
  ReadCommon(fields, config);
  config.head_norms = true;
  MustBeAbsent(fields, {"attn_logit_softcapping"});  // A field that the model does not look at.
  config.logit_softcap = ReadSoftcap(fields, "final_logit_softcapping", 0.0);
  constexpr JsonFields::Range kPatterns = {1, 1'000'000};
  const int64_t pattern = fields.Integer("sliding_window_pattern", kPatterns, 6);
  ReadLayerTypes(fields, config, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  ReadRopeOfLayerTypes(fields, config);
}

}  // namespace

const Family kGemma2 = {.model_type = "gemma2",
                        .architecture = "Gemma2ForCausalLM",
                        .classifier = "Gemma2ForSequenceClassification",
                        .max_positions = 8192,
                        .kv_heads = 4,
                        .head_width = 256,
                        .tied_embeddings = true,
                        .read = ReadGemma2};

const Family kGemma3 = {.model_type = "gemma3_text",
                        .architecture = "Gemma3ForCausalLM",
                        .classifier = "Gemma3TextForSequenceClassification",
                        .max_positions = 131'072,
                        .kv_heads = 4,
                        .head_width = 256,
                        .tied_embeddings = true,
                        .read = ReadGemma3};

}  // namespace snug::program
