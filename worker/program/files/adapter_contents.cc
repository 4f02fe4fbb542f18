#include "worker/program/files/adapter_contents.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/json.h"

namespace snug::program {
namespace {

constexpr char kDown[] = ".lora_A.weight";
constexpr char kUp[] = ".lora_B.weight";
constexpr char kEmbeddingDown[] = ".lora_embedding_A";
constexpr char kEmbeddingUp[] = ".lora_embedding_B";
constexpr char kWhole[] = ".weight", kBias[] = ".bias";

struct Halves {
  int64_t down_rank = 0;  // 0: not there.
  int64_t up_rank = 0;
};

absl::StatusOr<int64_t> RankOf(const AdapterTensor& tensor, bool down) {
  if (tensor.dtype != "F32") {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.key, ": adapters are saved as F32, not ", tensor.dtype));
  }
  if (tensor.shape.size() == 2 && tensor.shape[down ? 0 : 1] > 0) return tensor.shape[down ? 0 : 1];
  return absl::InvalidArgumentError(absl::StrCat(
      tensor.key, ": [", absl::StrJoin(tensor.shape, ", "), "] is no half of an adapter"));
}

}  // namespace

std::vector<AdapterTensor> AdapterTensorsOf(const Program& program) {
  std::vector<AdapterTensor> tensors;
  for (const Parameter& parameter : program.parameters) {
    if (!InAdapterFile(parameter)) continue;
    tensors.push_back({.key = AdapterFileKey(parameter),
                       .dtype = parameter.dtype == DType::kF32 ? "F32" : "BF16",
                       .shape = parameter.shape});
  }
  return tensors;
}

int64_t AdapterContents::largest_rank() const {
  int64_t largest = 0;
  for (const auto& [path, rank] : adapted) largest = std::max(largest, rank);
  return largest;
}

absl::StatusOr<AdapterContents> ContentsOf(const std::vector<AdapterTensor>& adapter) {
  std::map<std::string, Halves> modules;
  std::set<std::string> saved;  // A weight and its bias are of one module.
  AdapterContents contents;
  for (const AdapterTensor& tensor : adapter) {
    absl::string_view path = tensor.key;
    const bool named = absl::ConsumePrefix(&path, kAdapterPrefix);
    const bool down =
        absl::ConsumeSuffix(&path, kDown) || absl::ConsumeSuffix(&path, kEmbeddingDown);
    if (named && !path.empty() &&
        (down || absl::ConsumeSuffix(&path, kUp) || absl::ConsumeSuffix(&path, kEmbeddingUp))) {
      Halves& halves = modules[std::string(path)];
      ASSIGN_OR_RETURN((down ? halves.down_rank : halves.up_rank), RankOf(tensor, down));
      continue;
    }
    if (!named || path.empty() ||
        !(absl::ConsumeSuffix(&path, kWhole) || absl::ConsumeSuffix(&path, kBias))) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quote(tensor.key), " is no key of a PEFT adapter: ", kAdapterPrefix, "...",
                       kDown, " or ", kUp, ", or the path of a module's ", kWhole, " or ", kBias));
    }
    saved.emplace(path);
  }
  contents.saved.assign(saved.begin(), saved.end());
  for (const auto& [path, halves] : modules) {
    const auto& [down, up] = halves;
    if (down == 0 || up == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(kAdapterPrefix, path, down > 0 ? kUp : kDown, " is missing"));
    }
    if (down != up) {
      return absl::InvalidArgumentError(
          absl::StrCat(kAdapterPrefix, path, ": ranks ", down, " and ", up, " of its halves"));
    }
    contents.adapted[path] = down;
  }
  if (!contents.adapted.empty()) return contents;
  return absl::InvalidArgumentError("an adapter without tensors");
}

std::vector<std::string> TargetModules(const LoraConfig& lora, const AdapterContents& contents) {
  const auto& given = lora.target_modules;
  std::set<std::string> names(given.begin(), given.end());
  if (names.erase(kAllLinear) > 0) {
    for (const auto& [path, rank] : contents.adapted)
      names.insert(path.substr(path.rfind('.') + 1));
  }
  return {names.begin(), names.end()};
}

}  // namespace snug::program
