#include "worker/program/quantization.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/program/tape.h"

namespace snug::program {
namespace {

constexpr int64_t kF32 = 4;

int64_t Quotient(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

bool IsLinear(const Op& op) { return op.code == OpCode::kLinear || op.code == OpCode::kLoraLinear; }

absl::Status CheckRows(const Op& op, const Parameter& weight) {
  constexpr int64_t kShared = kNf4BlockElements * kNf4GroupBlocks;
  const int64_t first = op.attributes.row * weight.shape[1];
  if (weight.quantization != Quantization::kNf4 || first % kShared == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "quantization: nf4 has one scale for ", kShared, " elements, and the parts of ", weight.key,
      " begin within them (at element ", first, "): int8 or none serve other files of it"));
}

const char* NameOf(Quantization kind) { return kind == Quantization::kNf4 ? "nf4" : "int8"; }

absl::StatusOr<Quantization> KindOf(const ModelConfig& config, const TrainingMode& mode) {
  const Quantization files = config.quantization;
  if (files == Quantization::kNone) return mode.quantization;
  if (!mode.lora)
    return absl::InvalidArgumentError(
        absl::StrCat("quantization: the model's weights are in ", NameOf(files),
                     ", beside which an adapter is trained (method lora); a full job changes every "
                     "weight"));
  if (mode.quantization == Quantization::kNone || mode.quantization == files) return files;
  return absl::InvalidArgumentError(absl::StrCat("quantization: is ", NameOf(mode.quantization),
                                                 ", and the model's weights are in ", NameOf(files),
                                                 ": give that, or leave it out"));
}

// As transformers reads a list of modules: one that is named, or ends so, or lies in a named one.
bool IsInFloats(const ModelConfig& config, const std::string& key) {
  const absl::string_view module = absl::StripSuffix(key, ".weight");
  return absl::c_any_of(config.in_floats, [module](const std::string& name) {
    return absl::EndsWith(module, name) || absl::StartsWith(module, absl::StrCat(name, "."));
  });
}

size_t WeightOf(const Block& block, const Op& op) {
  return static_cast<size_t>(block.parameters[static_cast<size_t>(op.parameters[0])]);
}

// Whether each op reads codes in a block of that type.
std::vector<bool> ReadersOfCodes(const Program& program, const BlockType& type,
                                 const Block& block) {
  std::vector<bool> reads;
  for (const Op& op : type.ops) {
    const Parameter* weight = IsLinear(op) ? &program.parameters[WeightOf(block, op)] : nullptr;
    reads.push_back(weight != nullptr && !weight->trainable &&
                    !IsInFloats(program.config, weight->key));
  }
  return reads;
}

}  // namespace

// Where the files leave some layers' modules in floats, these layers' blocks get a type of their
// own.
absl::Status Quantize(Program& program, const TrainingMode& mode) {
  ASSIGN_OR_RETURN(const Quantization kind, KindOf(program.config, mode));
  if (kind == Quantization::kNone) return absl::OkStatus();
  const std::vector<BlockType> plain = std::exchange(program.types, {});
  std::map<std::pair<int, std::vector<bool>>, int> types;
  for (Block& block : program.blocks) {
    const BlockType& type = plain[static_cast<size_t>(block.type)];
    const std::vector<bool> reads = ReadersOfCodes(program, type, block);
    const auto [known, added] =
        types.try_emplace({block.type, reads}, static_cast<int>(program.types.size()));
    block.type = known->second;
    if (added) program.types.push_back(type);
    std::vector<Op>& ops = program.types[static_cast<size_t>(block.type)].ops;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!reads[i]) continue;
      Parameter& weight = program.parameters[WeightOf(block, ops[i])];
      weight.quantization = ops[i].attributes.quantization = kind;
      RETURN_IF_ERROR(CheckRows(ops[i], weight));
    }
  }
  return absl::OkStatus();
}

Nf4Sizes Nf4SizesOf(int64_t n) {
  const int64_t blocks = Quotient(n, kNf4BlockElements);
  return {
      .code_bytes = Quotient(n, 2), .blocks = blocks, .groups = Quotient(blocks, kNf4GroupBlocks)};
}

QuantizedParts PartsOf(const Parameter& parameter) {
  const int64_t n = parameter.elements();
  QuantizedParts parts;
  if (parameter.quantization == Quantization::kInt8) {
    parts.absmax = Aligned(n);
    parts.bytes = parts.absmax + Aligned(parameter.shape[0] * kF32);
    return parts;
  }
  const Nf4Sizes sizes = Nf4SizesOf(n);
  parts.absmax = Aligned(sizes.code_bytes);
  parts.absmax_codes = parts.absmax + Aligned(sizes.groups * kF32);
  parts.offset = parts.absmax_codes + Aligned(sizes.blocks);
  parts.bytes = parts.offset + Aligned(kF32);
  return parts;
}

int64_t ValueBytes(const Parameter& parameter) {
  if (parameter.quantization == Quantization::kNone) return Aligned(parameter.bytes());
  return PartsOf(parameter).bytes;
}

}  // namespace snug::program
