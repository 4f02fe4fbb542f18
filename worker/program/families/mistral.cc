// Mistral: Llama with a window on every layer, unless sliding_window is null (as from version 0.2
// of the 7B model on).
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

void Read(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("hidden_act", "silu");
  MustBeAbsent(fields, {"layer_types"});
  config.window = ReadWindow(fields, /*absent=*/4096);
  SlideEveryLayer(config);
  ReadRope(fields, kCommonRope, config);
}

}  // namespace

const Family kMistral = {.model_type = "mistral",
                         .architecture = "MistralForCausalLM",
                         .classifier = "MistralForSequenceClassification",
                         .max_positions = 131'072,
                         .kv_heads = 8,
                         .reversible = true,
                         .read = Read};

}  // namespace snug::program
