#include "worker/program/stash.h"

#include <algorithm>

namespace snug::program {
namespace {

// In the order of Stash.
constexpr StashRow kRows[kStashes] = {
    {"keep", Fidelity::kExact},
    {"recompute", Fidelity::kExact},
    {"offload", Fidelity::kExact, /*has_form=*/true, Region::kHost},
    {"int8", Fidelity::kApproximate, /*has_form=*/true, Region::kStash, /*code_bits=*/8},
    {"int4", Fidelity::kApproximate, /*has_form=*/true, Region::kStash, /*code_bits=*/4},
    {.name = "chunk", .fidelity = Fidelity::kExact, .in_loop = true},
};

Op CodeOp(OpCode code, const char* name, int bits) {
  Op op{code, name, {0}, {1}, {}, {}};
  op.attributes.code_bits = bits;
  return op;
}

}  // namespace

const StashRow& RowOf(Stash stash) { return kRows[static_cast<int>(stash)]; }

std::optional<Stash> StashOfName(std::string_view name) {
  const auto found = std::find_if(kAllStashes.begin(), kAllStashes.end(),
                                  [&](Stash stash) { return RowOf(stash).name == name; });
  if (found == kAllStashes.end()) return std::nullopt;
  return *found;
}

Operand FormOf(Stash stash, const Operand& value) {
  Operand form = value;
  form.slot = kNoSlot;
  if (RowOf(stash).code_bits == 0) return form;
  form.dtype = DType::kU8;
  form.width = static_cast<int32_t>(CodedRowBytes(value.width, RowOf(stash).code_bits));
  return form;
}

const Op* PackOf(Stash stash) {
  static const Op* const op8 = new Op(CodeOp(OpCode::kQuantize, "quantize to 8 bits", 8));
  static const Op* const op4 = new Op(CodeOp(OpCode::kQuantize, "quantize to 4 bits", 4));
  const int bits = RowOf(stash).code_bits;
  return bits == 8 ? op8 : bits == 4 ? op4 : nullptr;
}

const Op* UnpackOf(Stash stash) {
  static const Op* const op8 = new Op(CodeOp(OpCode::kDequantize, "dequantize 8 bits", 8));
  static const Op* const op4 = new Op(CodeOp(OpCode::kDequantize, "dequantize 4 bits", 4));
  const int bits = RowOf(stash).code_bits;
  return bits == 8 ? op8 : bits == 4 ? op4 : nullptr;
}

}  // namespace snug::program
