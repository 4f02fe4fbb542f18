#include "worker/program/stash.h"

#include <algorithm>

#include "worker/program/op_table.h"

namespace snug::program {
namespace {

// In the order of Stash.
constexpr StashRow kRows[kStashes] = {
    {"keep", Fidelity::kExact},
    {"recompute", Fidelity::kExact},
    {"offload", Fidelity::kExact, /*has_form=*/true, Region::kHost},
    {"int8", Fidelity::kApproximate, /*has_form=*/true, Region::kStash, /*code_bits=*/8},
    {"int4", Fidelity::kApproximate, /*has_form=*/true, Region::kStash, /*code_bits=*/4},
    {"two_bit", Fidelity::kApproximate, /*has_form=*/true, Region::kStash, /*code_bits=*/2,
     /*by_reader=*/true},
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

bool TakesForm(const Op& reader, size_t input, Stash stash) {
  return RowOf(stash).by_reader && (RowOf(reader.code).takes_codes >> input & 1) != 0;
}

Operand FormOf(Stash stash, const Operand& value, const Op* reader) {
  const StashRow& row = RowOf(stash);
  Operand form = value;
  form.slot = kNoSlot;
  if (row.code_bits == 0) return form;
  int64_t bytes = CodedRowBytes(value.width, row.code_bits);
  if (row.by_reader) {
    const bool activation = RowOf(reader->code).codes_beside_activation;
    bytes = TwoBitRowBytes(value.width) + (activation ? value.width * SizeOf(value.dtype) : 0);
  }
  form.dtype = DType::kU8;
  form.width = static_cast<int32_t>(bytes);
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
