// Phi-3 and Phi-4: Llama with q, k and v in one matrix, gate and up in another, and perhaps only
// the first part of each head turned. Versions for long contexts (longrope) are refused.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

void Read(JsonFields& fields, ModelConfig& config) {
  fields.MustBe("hidden_act", "silu");
  fields.MustBe("resid_pdrop", 0);
  MustBeAbsent(fields, {"layer_types"});
  config.fused_projections = true;
  config.window = ReadWindow(fields, /*absent=*/0);
  SlideEveryLayer(config);
  ReadRope(fields, {.kinds = {RopeScaling::Kind::kDefault}, .partial = true}, config);
}

}  // namespace

const Family kPhi3 = {.model_type = "phi3",
                      .architecture = "Phi3ForCausalLM",
                      .classifier = "Phi3ForSequenceClassification",
                      .max_positions = 4096,
                      .norm_epsilon = 1e-5,
                      .read = Read};

}  // namespace snug::program
