#include "worker/program/parameter.h"

#include "absl/strings/str_cat.h"

namespace snug::program {

std::string HeadKeyOf(const ModelConfig& config) {
  if (config.classifies()) return kScoreKey;
  return config.tied_embeddings ? kEmbeddingKey : kHeadKey;
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

std::string AdapterFileKey(const Parameter& parameter) {
  return parameter.adapter ? parameter.key : absl::StrCat(kAdapterPrefix, parameter.key);
}

}  // namespace snug::program
