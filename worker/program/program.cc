#include "worker/program/program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace snug::program {

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

bool SavesEmbedding(const Program& program) {
  return std::any_of(program.parameters.begin(), program.parameters.end(),
                     [](const Parameter& p) { return p.key == kEmbeddingKey && p.saved; });
}

std::vector<bool> OutputGradientWanted(const Program& program) {
  std::vector<bool> wanted;
  bool any = false;
  for (const Block& block : program.blocks) {
    for (int index : block.parameters) any = any || program.parameters[index].trainable;
    wanted.push_back(any);
  }
  return wanted;
}

}  // namespace snug::program
