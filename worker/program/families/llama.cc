// Llama 2 and 3, and what keeps their architecture.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

void Read(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("hidden_act", "silu");
  fields.MustBe("pretraining_tp", 1);
  MustBeAbsent(fields, {"sliding_window", "layer_types"});
  config.qkv_bias = config.output_bias = fields.Boolean("attention_bias", false);
  config.mlp_bias = fields.Boolean("mlp_bias", false);
  ReadRope(fields, kCommonRope, config);
}

}  // namespace

const Family kLlama = {.model_type = "llama",
                       .architecture = "LlamaForCausalLM",
                       .classifier = "LlamaForSequenceClassification",
                       .max_positions = 2048,
                       .reversible = true,
                       .read = Read};

}  // namespace snug::program
