#include "worker/program/quantization.h"

#include "absl/strings/str_cat.h"
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

}  // namespace

absl::Status Quantize(Program& program, const TrainingMode& mode) {
  ASSIGN_OR_RETURN(const Quantization kind, KindOf(program.config, mode));
  if (kind == Quantization::kNone) return absl::OkStatus();
  for (const Block& block : program.blocks) {
    for (Op& op : program.types[static_cast<size_t>(block.type)].ops) {
      if (!IsLinear(op)) continue;
      const int index = block.parameters[static_cast<size_t>(op.parameters[0])];
      Parameter& weight = program.parameters[static_cast<size_t>(index)];
      if (weight.trainable) continue;
      weight.quantization = op.attributes.quantization = kind;
      RETURN_IF_ERROR(CheckRows(op, weight));
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
