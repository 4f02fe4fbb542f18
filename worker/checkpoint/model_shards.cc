#include "worker/checkpoint/model_shards.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/finite.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/program/files/json_text.h"

namespace snug::checkpoint {
namespace {

// In their order, as many as fit; a tensor above the limit has a shard of its own.
std::vector<std::vector<TensorBytes>> Shards(const std::vector<TensorBytes>& tensors,
                                             int64_t max_bytes) {
  std::vector<std::vector<TensorBytes>> shards(1);
  int64_t bytes = 0;
  for (const TensorBytes& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.bytes > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor.bytes;
  }
  return shards;
}

// Of each tensor the name of its file.
absl::Status WriteIndex(const std::string& folder, nlohmann::ordered_json map, int64_t bytes) {
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", std::move(map)}};
  ASSIGN_OR_RETURN(const std::string text, program::JsonText(index, program::kIndent));
  return WriteNewFile(folder + "/model.safetensors.index.json", text + "\n").status();
}

absl::Status WriteShard(const std::string& path, const std::vector<TensorBytes>& tensors,
                        const TensorSource& source) {
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(tensors));
  ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path, layout.file_bytes));
  RETURN_IF_ERROR(file.Append(layout.header.data(), static_cast<int64_t>(layout.header.size())));
  for (const TensorBytes* tensor : layout.tensors) {
    const auto sink = [&](const void* bytes, int64_t count) -> absl::Status {
      if (FirstNonFinite(tensor->dtype, bytes, count) >= 0) {
        return absl::OutOfRangeError(
            absl::StrCat(tensor->key, " has a value that is NaN or infinite"));
      }
      return file.Append(bytes, count);
    };
    RETURN_IF_ERROR(source(*tensor, sink));
  }
  return file.Finish().status();
}

}  // namespace

absl::Status WriteModelShards(const std::string& folder, const std::vector<TensorBytes>& tensors,
                              const TensorSource& source, int64_t max_shard_bytes) {
  const std::vector<std::vector<TensorBytes>> shards = Shards(tensors, max_shard_bytes);
  if (shards.size() == 1) {
    return WriteShard(absl::StrCat(folder, "/", kModelFile), shards.front(), source);
  }
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    RETURN_IF_ERROR(WriteShard(absl::StrCat(folder, "/", name), shards[i], source));
    for (const TensorBytes& tensor : shards[i]) {
      map[tensor.key] = name;
      total += tensor.bytes;
    }
  }
  return WriteIndex(folder, std::move(map), total);
}

absl::Status WriteModelIndex(const std::string& folder, const std::vector<TensorBytes>& tensors) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t total = 0;
  for (const TensorBytes& tensor : tensors) {
    map[tensor.key] = kModelFile;
    total += tensor.bytes;
  }
  return WriteIndex(folder, std::move(map), total);
}

}  // namespace snug::checkpoint
