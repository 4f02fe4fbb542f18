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

absl::string_view ModuleOf(absl::string_view key) { return absl::StripSuffix(key, ".weight"); }

bool Matches(absl::string_view module, absl::string_view name) {
  if (absl::EndsWith(module, name)) return true;
  return absl::StartsWith(module, name) &&
         (absl::EndsWith(name, ".") || module[name.size()] == '.');
}

size_t WeightOf(const Block& block, const Op& op) {
  return static_cast<size_t>(block.parameters[static_cast<size_t>(op.parameters[0])]);
}

// The op has a weight. A job's own codes are in no head; those of files may be.
bool ReadsCodes(const ModelConfig& config, const Block& block, const Op& op,
                const Parameter& weight) {
  if (weight.trainable) return false;
  if (config.quantization != Quantization::kNone && block.layer < 0)
    return absl::c_linear_search(config.outer_codes, ModuleOf(weight.key)) &&
           !ReplacesHead(config, weight);
  return IsLinear(op) && NameInFloats(config, weight) == nullptr;
}

// Whether each op reads codes in a block of that type.
std::vector<bool> ReadersOfCodes(const Program& program, const BlockType& type,
                                 const Block& block) {
  std::vector<bool> reads;
  for (const Op& op : type.ops) {
    const bool multiplies = IsLinear(op) || op.code == OpCode::kHeadLoss;
    reads.push_back(multiplies &&
                    ReadsCodes(program.config, block, op, program.parameters[WeightOf(block, op)]));
  }
  return reads;
}

// A product with codes has no scale of its own.
absl::Status CheckScale(const Op& op, const Parameter& weight) {
  if (op.code != OpCode::kHeadLoss || op.attributes.table_scale == 1.0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("quantization: ", weight.key, " is in ", NameOf(weight.quantization),
                   ", and config.json scales what it reads (scale_decoder_outputs); accepted "
                   "beside that: a head in floats"));
}

}  // namespace

const std::string* NameInFloats(const ModelConfig& config, const Parameter& weight) {
  const absl::string_view of_files = ModuleOf(weight.key), of_class = ModuleOf(ModuleKeyOf(weight));
  const auto found = absl::c_find_if(config.in_floats, [&](const std::string& name) {
    return Matches(of_files, name) || Matches(of_class, name);
  });
  return found == config.in_floats.end() ? nullptr : &*found;
}

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
      RETURN_IF_ERROR(CheckScale(ops[i], weight));
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
