// ViT and DeiT, which has a second token beside the class's. Both classify by the class's token.
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

void ReadVit(JsonFields& fields, ModelConfig& config) {
  ReadImageEncoder(fields, config, /*patch_size=*/16);
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
