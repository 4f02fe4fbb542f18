#include "worker/program/parameter.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/program/encoder_traits.h"
#include "worker/program/stages.h"

namespace snug::program {

namespace {

std::string PrefixInStages(const ModelConfig& config, int64_t layer) {
  const StagePlace place = PlaceOf(config, layer);
  const std::string stage = absl::StrCat(BasePrefix(config), "encoder.layers.", place.stage, ".");
  return place.merges ? stage + "downsample." : absl::StrCat(stage, "blocks.", place.layer, ".");
}

}  // namespace

std::string LayerPrefix(const ModelConfig& config, int64_t layer) {
  if (!config.stages.empty()) return PrefixInStages(config, layer);
  if (config.encoder) return absl::StrCat(BasePrefix(config), TraitsOf(config).layers, layer, ".");
  const int64_t encoder_layers = config.layers - config.decoder_layers;
  if (config.has_source() && layer < encoder_layers)
    return absl::StrCat("encoder.block.", layer, ".");
  if (config.has_source()) return absl::StrCat("decoder.block.", layer - encoder_layers, ".");
  return absl::StrCat("model.layers.", layer, ".");
}

std::string LayerModules(const ModelConfig& config, int64_t layer) {
  if (config.of_images() && config.stages.empty())
    return absl::StrCat(BasePrefix(config), "layers.", layer, ".");
  return LayerPrefix(config, layer);
}

std::string EmbeddingKeyOf(const ModelConfig& config) {
  if (config.encoder)
    return absl::StrCat(BasePrefix(config), TraitsOf(config).embedding, ".weight");
  return config.has_source() ? kSharedKey : kEmbeddingKey;
}

std::vector<std::string> EmbeddingAliasesOf(const ModelConfig& config) {
  std::vector<std::string> aliases;
  if (config.tied_embeddings) aliases.push_back(absl::StrCat(HeadPathOf(config), ".weight"));
  if (config.has_source())
    aliases.insert(aliases.end(), {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"});
  else if (config.distances.buckets > 0)
    aliases.push_back(BasePrefix(config) + "encoder.embed_tokens.weight");
  return aliases;
}

std::string HeadPathOf(const ModelConfig& config) {
  if (config.task == Task::kMaskedLm) return TraitsOf(config).decoder;
  if (config.encoder) return kClassifierPath;
  return config.classifies() ? kScorePath : kHeadPath;
}

bool IsEmbedding(const Parameter& p) {
  return p.key == kEmbeddingKey || absl::EndsWith(p.key, kSharedKey) ||
         absl::EndsWith(p.key, "_embeddings.weight");
}

bool IsDrawn(const ModelConfig& config, const Parameter& p) {
  if (!config.new_head) return false;
  if (!config.encoder) return p.key == kScoreKey;
  return absl::StartsWith(p.key, absl::StrCat(kClassifierPath, ".")) ||
         (p.trainable && absl::StartsWith(p.key, absl::StrCat(TraitsOf(config).pooler, ".")));
}

bool ReplacesHead(const ModelConfig& config, const Parameter& p) {
  return config.of_images() && IsDrawn(config, p);
}

std::string HeadKeyOf(const ModelConfig& config) {
  if (config.task == Task::kMaskedLm) return EmbeddingKeyOf(config);
  if (config.encoder) {
    const bool one_matrix = config.pools || config.task != Task::kSequenceClassification;
    return absl::StrCat(kClassifierPath, one_matrix ? ".weight" : ".out_proj.weight");
  }
  if (config.classifies()) return kScoreKey;
  return config.tied_embeddings ? EmbeddingKeyOf(config) : kHeadKey;
}

int64_t HeadRowsOf(const ModelConfig& config) {
  return config.classifies() ? config.labels : config.vocabulary;
}

int64_t Parameter::elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::string AdapterKey(const std::string& module_path, bool up) {
  if (absl::StrCat(module_path, ".weight") == kEmbeddingKey) {
    return absl::StrCat(kAdapterPrefix, module_path, ".lora_embedding_", up ? "B" : "A");
  }
  return absl::StrCat(kAdapterPrefix, module_path, up ? ".lora_B.weight" : ".lora_A.weight");
}

const std::string& ModuleKeyOf(const Parameter& parameter) {
  return parameter.module_key.empty() ? parameter.key : parameter.module_key;
}

std::string AdapterFileKey(const Parameter& parameter) {
  return parameter.adapter ? parameter.key : absl::StrCat(kAdapterPrefix, ModuleKeyOf(parameter));
}

}  // namespace snug::program
