#include "worker/program/stash.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
     /*taken=*/true, /*by_reader=*/true},
    {.name = "chunk", .fidelity = Fidelity::kExact, .in_loop = true},
    {.name = "sampled", .fidelity = Fidelity::kUnbiased, .has_form = true, .taken = true},
    {.name = "reversible", .fidelity = Fidelity::kExact, .by_inverse = true},
};

Op SampleOp(bool with_replacement) {
  Op op{OpCode::kSampleRows, "sample rows", {0}, {1}, {}, {}};
  op.attributes.with_replacement = with_replacement;
  return op;
}

Op CodeOp(OpCode code, const char* name, int bits) {
  Op op{code, name, {0}, {1}, {}, {}};
  op.attributes.code_bits = bits;
  return op;
}

}  // namespace

const StashRow& RowOf(Stash stash) { return kRows[static_cast<int>(stash)]; }

bool FormsAllowed::Allows(Stash stash) const {
  const StashRow& row = RowOf(stash);
  const bool too_few = row.code_bits > 0 && !row.taken && row.code_bits < least_code_bits;
  return row.fidelity <= fidelity && !too_few && (row.region != Region::kHost || on_host);
}

const char* NameOf(Estimator estimator) { return estimator == Estimator::kPps ? "pps" : "wta"; }

absl::StatusOr<SiteStash> SampledBy(std::optional<double> rho, std::string_view estimator) {
  SiteStash stash = Stash::kSampled;
  if (rho.has_value()) {
    const double share = std::round(*rho * kWholeShare);
    const bool whole = std::abs(share - *rho * kWholeShare) < 1e-6;
    if (!(share >= 1.0 && share <= kWholeShare && whole))
      return absl::InvalidArgumentError(
          absl::StrCat("rho must be from 0.0001 to 1, with four decimals at most, not ", *rho));
    stash.share = static_cast<uint16_t>(share);
  }
  if (estimator == NameOf(Estimator::kWta)) {
    stash.estimator = Estimator::kWta;
  } else if (!estimator.empty() && estimator != NameOf(Estimator::kPps)) {
    return absl::InvalidArgumentError(
        absl::StrCat("estimator must be pps or wta, not \"", std::string(estimator), "\""));
  }
  return stash;
}

std::optional<Stash> StashOfName(std::string_view name) {
  const auto found = std::find_if(kAllStashes.begin(), kAllStashes.end(),
                                  [&](Stash stash) { return RowOf(stash).name == name; });
  if (found == kAllStashes.end()) return std::nullopt;
  return *found;
}

bool TakesForm(const Op& reader, size_t input, Stash stash) {
  if (!RowOf(stash).taken) return false;
  const OpRow& row = RowOf(reader.code);
  const bool sampled = stash == Stash::kSampled;
  // No code's slopes stand for tanh (kernels/activation.h).
  if (!sampled && reader.attributes.activation == Activation::kTanh) return false;
  const uint8_t takes = sampled ? row.takes_sample : row.takes_codes;
  return (takes >> input & 1) != 0;
}

Operand FormOf(const SiteStash& stash, const Operand& value, const Op* reader) {
  const StashRow& row = RowOf(stash.kind);
  Operand form = value;
  form.slot = kNoSlot;
  if (stash.kind == Stash::kSampled) {
    form.dtype = DType::kU8;
    const int64_t row_bytes = (value.width * SizeOf(value.dtype) + 3) / 4 * 4;
    form.width = static_cast<int32_t>(row_bytes + kSampledRowBytes);
    form.share = stash.share;
  }
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

const Op* PackOf(const SiteStash& stash) {
  static const Op* const op8 = new Op(CodeOp(OpCode::kQuantize, "quantize to 8 bits", 8));
  static const Op* const op4 = new Op(CodeOp(OpCode::kQuantize, "quantize to 4 bits", 4));
  static const Op* const pps = new Op(SampleOp(/*with_replacement=*/false));
  static const Op* const wta = new Op(SampleOp(/*with_replacement=*/true));
  if (stash.kind == Stash::kSampled) return stash.estimator == Estimator::kWta ? wta : pps;
  const int bits = RowOf(stash.kind).code_bits;
  return bits == 8 ? op8 : bits == 4 ? op4 : nullptr;
}

// By its code: a sample's rows are drawn in two ways.
Stash FormMadeBy(const Op& op) {
  static const auto* const forms = [] {
    auto* packed = new std::vector<std::pair<const Op*, Stash>>;
    for (Stash form : kAllStashes)
      if (const Op* pack = PackOf(form)) packed->emplace_back(pack, form);
    return packed;
  }();
  for (const auto& [pack, form] : *forms)
    if (pack->code == op.code && pack->attributes.code_bits == op.attributes.code_bits) return form;
  return Stash::kKeep;
}

const Op* UnpackOf(Stash stash) {
  static const Op* const op8 = new Op(CodeOp(OpCode::kDequantize, "dequantize 8 bits", 8));
  static const Op* const op4 = new Op(CodeOp(OpCode::kDequantize, "dequantize 4 bits", 4));
  const int bits = RowOf(stash).code_bits;
  return bits == 8 ? op8 : bits == 4 ? op4 : nullptr;
}

}  // namespace snug::program
