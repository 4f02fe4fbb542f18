// ViT and DeiT, which has a second token beside the class's. Both classify by the class's token.
#include "absl/strings/str_cat.h"
#include "worker/program/families/family.h"

namespace snug::program {
namespace {

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};
constexpr JsonFields::Range kSizes = {1, kMaxImageSize};

// A number, or a list of two that are the same.
int64_t ReadSide(JsonFields& fields, const char* name, int64_t absent) {
  const nlohmann::json* given = fields.Find(name);
  if (given == nullptr || !given->is_array()) return fields.Integer(name, kSizes, absent);
  const bool square = given->size() == 2 && (*given)[0] == (*given)[1] &&
                      (*given)[0].is_number_integer() && (*given)[0] >= 1 &&
                      (*given)[0] <= kMaxImageSize;
  if (square) return (*given)[0].get<int64_t>();
  fields.Refuse(name, absl::StrCat("one number of 1 to ", kMaxImageSize, ", or it twice"));
  return absent;
}

void ReadVit(JsonFields& fields, ModelConfig& config) {
  ReadActivation(fields, config);
  config.encoder = true;
  config.tied_embeddings = false;
  config.qkv_bias = fields.Boolean("qkv_bias", true);
  config.hidden_dropout = fields.Real("hidden_dropout_prob", kDropouts, 0.0);
  config.attention_dropout = fields.Real("attention_probs_dropout_prob", kDropouts, 0.0);
  config.image_size = ReadSide(fields, "image_size", 224);
  config.patch_size = ReadSide(fields, "patch_size", 16);
  config.image_channels = fields.Integer("num_channels", {1, 3}, 3);
  if (config.image_channels == 2) fields.Refuse("num_channels", "1 or 3");
  if (config.image_size < 1 || config.patch_size < 1) return;  // Refused already.
  if (config.image_size % config.patch_size != 0)
    fields.Refuse("image_size", absl::StrCat("a multiple of patch_size = ", config.patch_size));
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
