#include "worker/program/families/family.h"

#include "absl/strings/str_cat.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr JsonFields::RealRange kDropouts = {0.0, 0.99};
constexpr JsonFields::Range kWindows = {1, 4'000'000};

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

}  // namespace

void MustBeAbsent(JsonFields& fields, std::initializer_list<const char*> names) {
  for (const char* name : names) fields.MustBe(name, nullptr);
}

void ReadActivation(JsonFields& fields, ModelConfig& config, const char* field) {
  struct Named {
    const char* name;
    Activation activation;
  };
  constexpr Named kNames[] = {
      {"gelu", Activation::kGelu},         {"relu", Activation::kRelu},
      {"gelu_new", Activation::kGeluTanh}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"silu", Activation::kSilu},         {"swish", Activation::kSilu}};
  config.activation = Activation::kGelu;
  const nlohmann::json* given = fields.Find(field);
  if (given == nullptr) return;
  for (const auto& [name, activation] : kNames) {
    if (*given != name) continue;
    config.activation = activation;
    return;
  }
  fields.Refuse(field,
                "\"gelu\", \"relu\", \"gelu_new\", \"gelu_pytorch_tanh\", \"silu\", \"swish\"");
}

void ReadImageEncoder(JsonFields& fields, ModelConfig& config, int64_t patch_size) {
  ReadActivation(fields, config);
  config.encoder = true;
  config.tied_embeddings = false;
  config.qkv_bias = fields.Boolean("qkv_bias", true);
  config.hidden_dropout = fields.Real("hidden_dropout_prob", kDropouts, 0.0);
  config.attention_dropout = fields.Real("attention_probs_dropout_prob", kDropouts, 0.0);
  config.image_size = ReadSide(fields, "image_size", 224);
  config.patch_size = ReadSide(fields, "patch_size", patch_size);
  config.image_channels = fields.Integer("num_channels", {1, 3}, 3);
  if (config.image_channels == 2) fields.Refuse("num_channels", "1 or 3");
  if (config.image_size < 1 || config.patch_size < 1) return;  // Refused already.
  if (config.image_size % config.patch_size != 0)
    fields.Refuse("image_size", absl::StrCat("a multiple of patch_size = ", config.patch_size));
}

int64_t ReadWindow(JsonFields& fields, int64_t absent) {
  if (fields.IsNull("sliding_window")) return 0;
  return fields.Integer("sliding_window", kWindows, absent);
}

void SlideEveryLayer(ModelConfig& config) {
  config.sliding.assign(static_cast<size_t>(config.layers), config.window > 0);
}

void ReadLayerTypes(JsonFields& fields, ModelConfig& config,
                    const std::function<bool(int64_t layer)>& slides) {
  const json* types = fields.Find("layer_types");
  const auto layers = static_cast<size_t>(config.layers);
  if (types != nullptr && (!types->is_array() || types->size() != layers)) {
    return fields.Refuse("layer_types", absl::StrCat("a list of ", layers, " names"));
  }
  bool any = false;
  for (size_t layer = 0; layer < layers; ++layer) {
    bool sliding = types == nullptr && slides(static_cast<int64_t>(layer));
    if (types != nullptr) {
      const json& type = (*types)[layer];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention") {
        return fields.Refuse("layer_types", "\"full_attention\", \"sliding_attention\"");
      }
    }
    config.sliding.push_back(sliding);
    any = any || sliding;
  }
  if (any && config.window == 0) {
    fields.Refuse("sliding_window", "a number of tokens: there are layers that slide");
  }
}

}  // namespace snug::program
