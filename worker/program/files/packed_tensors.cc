#include "worker/program/files/packed_tensors.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/json.h"
#include "worker/program/quantization.h"

namespace snug::program {
namespace {

using nlohmann::json;

constexpr char kState[] = ".quant_state.bitsandbytes__nf4";
constexpr char kRowScales[] = ".SCB";
constexpr char kWeight[] = ".weight";
constexpr JsonLimits kStateLimits = {.bytes = 4096, .values = 64, .depth = 3};
constexpr double kMostScale = 1e30;  // Far above any, and a float.

int64_t Elements(const TensorEntry& entry) {
  int64_t elements = 1;
  for (const int64_t size : entry.shape) elements *= size;
  return elements;
}

// Parts of one matrix, out of the index.
class Parts {
 public:
  Parts(TensorIndex& index, std::string matrix) : index_(index), matrix_(std::move(matrix)) {}

  absl::StatusOr<TensorEntry> Take(const std::string& name) {
    std::optional<TensorEntry> taken = TakeIfThere(name);
    if (taken) return *std::move(taken);
    return absl::InvalidArgumentError(
        absl::StrCat("the weights have ", Quote(matrix_), " in codes, and no ", Quote(name)));
  }
  std::optional<TensorEntry> TakeIfThere(const std::string& name) {
    auto taken = index_.extract(name);
    if (taken.empty()) return std::nullopt;
    return std::move(taken.mapped());
  }

 private:
  TensorIndex& index_;
  const std::string matrix_;
};

absl::StatusOr<PackedTensor> TakeNf4(const std::string& key, TensorIndex& index) {
  Parts parts(index, key);
  PackedTensor packed{.kind = Quantization::kNf4};
  ASSIGN_OR_RETURN(packed.state, parts.Take(key + kState));
  ASSIGN_OR_RETURN(packed.absmax, parts.Take(key + ".absmax"));
  ASSIGN_OR_RETURN(packed.levels, parts.Take(key + ".quant_map"));
  packed.scales = parts.TakeIfThere(key + ".nested_absmax");
  if (!packed.scales) return packed;
  ASSIGN_OR_RETURN(packed.scale_levels, parts.Take(key + ".nested_quant_map"));
  return packed;
}

absl::StatusOr<PackedTensor> TakeInt8(const std::string& key, TensorIndex& index) {
  Parts parts(index, key);
  const std::string module(absl::StripSuffix(key, kWeight));
  PackedTensor packed{.kind = Quantization::kInt8};
  ASSIGN_OR_RETURN(packed.absmax, parts.Take(module + kRowScales));
  packed.order = parts.TakeIfThere(module + ".weight_format");
  return packed;
}

std::string Not(const char* what, const TensorEntry& entry, const char* dtype, int64_t elements) {
  if (entry.dtype == dtype && Elements(entry) == elements) return "";
  return absl::StrCat(what, " ", entry.dtype, " of ", Elements(entry), " elements, expected ",
                      dtype, " of ", elements);
}

// The first that is wrong.
std::string First(std::vector<std::string> wrong) {
  for (std::string& each : wrong)
    if (!each.empty()) return std::move(each);
  return "";
}

// Layers are numbered, in every family.
bool IsInLayer(absl::string_view module) {
  const std::vector<absl::string_view> parts = absl::StrSplit(module, '.');
  return absl::c_any_of(parts, [](absl::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == absl::string_view::npos;
  });
}

}  // namespace

absl::StatusOr<TensorIndex> WithPacked(TensorIndex index, Quantization kind) {
  if (kind == Quantization::kNone) return index;
  const bool nf4 = kind == Quantization::kNf4;
  std::vector<std::string> matrices;
  for (const auto& [name, entry] : index) {
    absl::string_view matrix = name;
    if (absl::ConsumeSuffix(&matrix, nf4 ? kState : kRowScales))
      matrices.push_back(nf4 ? std::string(matrix) : absl::StrCat(matrix, kWeight));
  }
  for (const std::string& key : matrices) {
    ASSIGN_OR_RETURN(PackedTensor packed, nf4 ? TakeNf4(key, index) : TakeInt8(key, index));
    const auto codes = index.find(key);
    if (codes == index.end())
      return absl::InvalidArgumentError(
          absl::StrCat("the weights have scales for ", Quote(key), ", and no codes"));
    codes->second.packed = std::make_shared<const PackedTensor>(std::move(packed));
  }
  return index;
}

std::vector<std::string> CodesOutsideLayers(const TensorIndex& index) {
  std::vector<std::string> modules;
  for (const auto& [key, entry] : index) {
    absl::string_view module = key;
    if (entry.packed == nullptr || !absl::ConsumeSuffix(&module, kWeight)) continue;
    if (!IsInLayer(module) && !IsEmbedding({.key = key})) modules.emplace_back(module);
  }
  return modules;
}

std::string WrongCodes(const Parameter& parameter, const TensorEntry& entry) {
  const PackedTensor& packed = *entry.packed;
  if (parameter.quantization != packed.kind) return "in codes, expected F32, BF16 or F16";
  const int64_t n = parameter.elements();
  if (packed.kind == Quantization::kInt8 && entry.shape != parameter.shape)
    return "of another shape";
  if (packed.kind == Quantization::kInt8)
    return First({Not("codes", entry, "I8", n),
                  Not("scales", packed.absmax, "F32", parameter.shape[0]),
                  packed.order ? Not("order", *packed.order, "U8", 1) : ""});
  const Nf4Sizes sizes = Nf4SizesOf(n);
  std::vector<std::string> wrong = {
      Not("codes", entry, "U8", sizes.code_bytes), Not("levels", packed.levels, "F32", kNf4Codes),
      Not("scales", packed.absmax, packed.scales ? "U8" : "F32", sizes.blocks)};
  if (packed.scales) {
    wrong.push_back(Not("scales of scales", *packed.scales, "F32", sizes.groups));
    wrong.push_back(Not("levels of scales", *packed.scale_levels, "F32", kScaleCodes));
  }
  return First(std::move(wrong));
}

absl::StatusOr<float> ReadScalesMean(std::string_view state, const Parameter& parameter,
                                     const TensorEntry& entry) {
  const std::string where = absl::StrCat(entry.file, ": ", parameter.key, kState);
  ASSIGN_OR_RETURN(const json read, ParseJson(state, where, kStateLimits));
  const auto is = [&](const char* name, const json& expected) {
    const auto found = read.is_object() ? read.find(name) : read.end();
    return found != read.end() && *found == expected;
  };
  const bool nested = entry.packed->scales.has_value();
  if (!is("quant_type", "nf4") || !is("blocksize", kNf4BlockElements) ||
      !is("shape", parameter.shape) || (nested && !is("nested_blocksize", kNf4GroupBlocks)))
    return absl::InvalidArgumentError(
        absl::StrCat(where, " does not say nf4 of this shape in blocks of ", kNf4BlockElements,
                     ", whose scales are in groups of ", kNf4GroupBlocks));
  const auto mean = read.find("nested_offset");
  if (nested != (mean != read.end()))
    return absl::InvalidArgumentError(
        absl::StrCat(where, nested ? " has no nested_offset" : " has one, and no nested_absmax"));
  if (!nested) return 0.0f;
  if (!mean->is_number() || std::abs(mean->get<double>()) > kMostScale)
    return absl::InvalidArgumentError(absl::StrCat(where, " has a nested_offset that is none"));
  return static_cast<float>(mean->get<double>());
}

}  // namespace snug::program
