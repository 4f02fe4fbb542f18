// A model's model.safetensors.index.json beside shards: one has the tensor "w", two have the codes
// of a matrix in nf4 and what belongs to them, and one has a matrix in int8.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/fuzz/folder.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/files/safetensors.h"

namespace {

using namespace snug::program;

// Tensors of one byte each.
using Names = std::vector<std::string>;
const std::pair<const char*, Names> kShards[] = {
    {"a", {"w"}},
    {"b", {"m.weight"}},
    {"c",
     {"m.weight.absmax", "m.weight.nested_absmax", "m.weight.nested_quant_map",
      "m.weight.quant_map", "m.weight.quant_state.bitsandbytes__nf4"}},
    {"d", {"n.SCB", "n.weight", "n.weight_format"}}};

std::string Shard(const Names& names) {
  Names members;
  for (size_t i = 0; i < names.size(); ++i)
    members.push_back(absl::StrCat("\"", names[i], R"(":{"dtype":"U8","shape":[1],)",
                                   R"("data_offsets":[)", i, ",", i + 1, "]}"));
  const std::string header = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(names.size(), '\0');
}

std::string FolderOfShards() {
  const std::string folder = Folder("sharded");
  for (const auto& [shard, names] : kShards)
    Write(absl::StrCat(folder, "/", shard, ".safetensors"), Shard(names));
  return folder;
}

// Only what shards have can be found, of each all or nothing. How many tensors these have.
size_t CheckShards(const TensorIndex& index) {
  size_t tensors = 0;
  for (const auto& [shard, names] : kShards) {
    const bool has = index.contains(names.front());
    for (const std::string& name : names)
      if (index.contains(name) != has) abort();
    tensors += has ? names.size() : 0;
  }
  if (index.size() != tensors) abort();
  return tensors;
}

// Of files whose config.json says that they have codes of that kind: a matrix is one tensor.
void CheckPacked(const std::string& folder, const TensorIndex& index, Quantization kind) {
  const bool nf4 = kind == Quantization::kNf4;
  const bool has_scales = index.contains(nf4 ? "m.weight.absmax" : "n.SCB");
  const std::string matrix = nf4 ? "m.weight" : "n.weight";
  ModelConfig config;
  config.quantization = kind;
  const auto packed = ReadModelIndex(folder, config);
  if (packed.ok() != (!has_scales || index.contains(matrix))) abort();
  if (!packed.ok()) return;
  const size_t parts = !has_scales ? 0 : nf4 ? 5 : 2;
  if (packed->size() + parts != index.size()) abort();
  for (const auto& [name, entry] : *packed)
    if ((entry.packed != nullptr) != (has_scales && name == matrix)) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const std::string folder = FolderOfShards();
  Write(folder + "/model.safetensors.index.json",
        std::string_view(reinterpret_cast<const char*>(bytes), size));
  const auto index = ReadModelIndex(folder);
  if (!index.ok()) return 0;
  if (CheckShards(*index) == 0) abort();
  CheckPacked(folder, *index, Quantization::kNf4);
  CheckPacked(folder, *index, Quantization::kInt8);
  return 0;
}
