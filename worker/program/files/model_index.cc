// The weights of a model directory, in one file or in shards:
//   model.safetensors, or
//   model.safetensors.index.json   {"metadata": {...}, "weight_map": {tensor: shard, ...}}
//   model-00001-of-00002.safetensors ...
// The one file wins where both are, as in transformers. The index and the shards must say the same:
// every tensor is in the shard that the index names, and in no other.
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/program/encoder_traits.h"
#include "worker/program/files/json.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/files/regular_file.h"
#include "worker/program/files/safetensors.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr char kSuffix[] = ".safetensors";
constexpr size_t kMaxShards = 1'024;  // The largest models are published in under 200.
constexpr size_t kMaxNameBytes = 255;
// As many tensors as one header may have, with names of 100 bytes.
constexpr JsonLimits kIndexLimits = {.bytes = 32 << 20, .values = 201'000, .depth = 4};

using WeightMap = std::map<std::string, std::string>;  // Tensor -> shard.

// [A-Za-z0-9._-]+\.safetensors: such a name stays in its directory.
bool IsShardName(const std::string& name) {
  const size_t stem = name.size() - std::min(name.size(), std::string_view(kSuffix).size());
  if (stem == 0 || name.size() > kMaxNameBytes || !absl::EndsWith(name, kSuffix)) return false;
  return name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
         std::string::npos;
}

absl::StatusOr<WeightMap> ReadWeightMap(const std::string& path) {
  ASSIGN_OR_RETURN(const json document, ReadJsonFile(path, kIndexLimits));
  const auto member = document.find("weight_map");  // end() when the document is no object.
  if (member == document.end() || !member->is_object() || member->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no tensors in \"weight_map\""));
  }
  WeightMap shards;
  for (const auto& [tensor, shard] : member->items()) {
    const auto* name = shard.get_ptr<const std::string*>();
    if (name == nullptr || !IsShardName(*name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", Quote(tensor), " is in ", name ? Quote(*name) : "no named file",
          "; accepted: a file name of letters, digits, '.', '_', '-' that ends in ", kSuffix));
    }
    shards[tensor] = *name;
  }
  return shards;
}

// Adds the shard's tensors to `index`.
absl::Status AddShard(const std::string& dir, const std::string& shard, const WeightMap& shards,
                      TensorIndex* index) {
  ASSIGN_OR_RETURN(TensorIndex tensors, ReadSafetensorsHeader(absl::StrCat(dir, "/", shard)));
  for (auto& [name, entry] : tensors) {
    const auto expected = shards.find(name);
    if (expected == shards.end() || expected->second != shard) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.file, ": has ", Quote(name), ", which ", kIndexFile, " places in ",
                       expected == shards.end() ? "no file" : expected->second));
    }
    (*index)[name] = std::move(entry);
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorIndex> ReadShards(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/", kIndexFile);
  ASSIGN_OR_RETURN(const WeightMap shards, ReadWeightMap(path));
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shards) names.insert(shard);
  if (names.size() > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", names.size(), " files; at most ", kMaxShards));
  }
  TensorIndex index;
  for (const std::string& shard : names) RETURN_IF_ERROR(AddShard(dir, shard, shards, &index));
  for (const auto& [tensor, shard] : shards) {
    if (index.contains(tensor)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": places ", Quote(tensor), " in ", shard, ", which does not have it"));
  }
  return index;
}

// A directory without safetensors often has the same weights in a form that is not read.
absl::Status NoWeights(const std::string& dir) {
  std::string found;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json",
                           "consolidated.00.pth", "adapter_model.safetensors"}) {
    if (IsSomethingAt(absl::StrCat(dir, "/", name))) {
      absl::StrAppend(&found, "; it has ", name, ", which is not a model in safetensors");
    }
  }
  return absl::NotFoundError(
      absl::StrCat(dir, " has neither ", kSingleFile, " nor ", kIndexFile, found));
}

}  // namespace

namespace {

// Files that were made of TensorFlow's call a layer norm's parameters so; transformers renames them
// as it reads.
absl::StatusOr<TensorIndex> WithTodaysNames(absl::StatusOr<TensorIndex> index) {
  if (!index.ok()) return index;
  TensorIndex renamed;
  for (auto& [key, entry] : *index) {
    absl::string_view path = key;
    const bool gamma = absl::ConsumeSuffix(&path, "LayerNorm.gamma");
    const bool beta = !gamma && absl::ConsumeSuffix(&path, "LayerNorm.beta");
    const char* name = gamma ? "LayerNorm.weight" : "LayerNorm.bias";
    renamed[gamma || beta ? absl::StrCat(path, name) : key] = std::move(entry);
  }
  return renamed;
}

}  // namespace

absl::StatusOr<TensorIndex> ReadModelIndex(const std::string& model_dir) {
  absl::StatusOr<TensorIndex> single =
      ReadSafetensorsHeader(absl::StrCat(model_dir, "/", kSingleFile));
  if (!absl::IsNotFound(single.status())) return WithTodaysNames(std::move(single));
  if (!IsSomethingAt(absl::StrCat(model_dir, "/", kIndexFile))) return NoWeights(model_dir);
  return WithTodaysNames(ReadShards(model_dir));
}

absl::StatusOr<TensorIndex> ReadModelIndex(const std::string& model_dir,
                                           const ModelConfig& config) {
  ASSIGN_OR_RETURN(TensorIndex index, ReadModelIndex(model_dir));
  ASSIGN_OR_RETURN(index, WithPacked(std::move(index), config.quantization));
  const auto has = [&](const std::string& prefix) {
    const auto first = index.lower_bound(prefix);
    return first != index.end() && absl::StartsWith(first->first, prefix);
  };
  const std::string prefix = BasePrefix(config);
  const absl::string_view table = TraitsOf(config).embedding;
  const std::string first = std::string(table.substr(0, table.find('.'))) + ".";
  if (!config.encoder || has(prefix) || !has(first)) return index;
  TensorIndex renamed;
  for (auto& [key, entry] : index) renamed[prefix + key] = std::move(entry);
  return renamed;
}

}  // namespace snug::program
