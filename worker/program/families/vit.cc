// ViT and DeiT, which has a second token beside the class's. Both classify by the class's token.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};

void ReadVit(JsonFields& fields, ModelConfig& config) {
  ReadActivation(fields, config);
  config.encoder = true;
  config.tied_embeddings = false;
  config.qkv_bias = fields.Boolean("qkv_bias", true);
  config.hidden_dropout = fields.Real("hidden_dropout_prob", kDropouts, 0.0);
  config.attention_dropout = fields.Real("attention_probs_dropout_prob", kDropouts, 0.0);
  ReadImageSizes(fields, config, /*patch_size=*/16);
  if (config.image_size < 1 || config.patch_size < 1) return;  // Refused already.
  config.max_positions = config.tokens_of_image();
}

void ReadDeit(JsonFields& fields, ModelConfig& config) {
  config.distilled = true;
  ReadVit(fields, config);
}

}  // namespace

const Family kVit = {.model_type = "vit",
                     .architecture = "ViTForMaskedImageModeling",
                     .classifier = "ViTForImageClassification",
                     .max_positions = 0,
                     .norm_epsilon = 1e-12,
                     .encoder = true,
                     .images = true,
                     .base = "vit",
                     .read = ReadVit};

const Family kDeit = {.model_type = "deit",
                      .architecture = "DeiTForMaskedImageModeling",
                      .classifier = "DeiTForImageClassification",
                      .max_positions = 0,
                      .norm_epsilon = 1e-12,
                      .encoder = true,
                      .images = true,
                      .base = "deit",
                      .read = ReadDeit};

}  // namespace snug::program
