#include "worker/weights/packed_weight.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/nf4_levels.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/packed_tensors.h"

namespace snug::weights {
namespace {

using program::TensorEntry;

constexpr float kLevelSlack = 1e-6f;  // Between versions that computed them in other ways.

float LevelOf4(uint32_t code) { return kernels::kNf4Levels.at[code]; }
float LevelOf8(uint32_t code) { return kernels::DynamicValue(kernels::kDynamicMap, code); }

absl::Status CheckLevels(const TensorEntry& entry, int64_t count, float (*level)(uint32_t),
                         BytesOf bytes_of) {
  ASSIGN_OR_RETURN(const char* bytes, bytes_of(entry));
  for (uint32_t code = 0; code < static_cast<uint32_t>(count); ++code) {
    float theirs = 0.0f;
    std::memcpy(&theirs, bytes + code * sizeof theirs, sizeof theirs);
    if (std::abs(theirs - level(code)) <= kLevelSlack) continue;
    return absl::InvalidArgumentError(absl::StrCat(entry.file, ": code ", code, " of a matrix is ",
                                                   theirs, ", expected ", level(code)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FillFromCodes(execute::Device& device, const program::Parameter& parameter,
                           const TensorEntry& entry, const QuantizedWeight& to, BytesOf bytes_of) {
  const program::PackedTensor& packed = *entry.packed;
  QuantizedWeight::Codes from;
  ASSIGN_OR_RETURN(from.codes, bytes_of(entry));
  ASSIGN_OR_RETURN(from.absmax, bytes_of(packed.absmax));
  if (packed.kind == program::Quantization::kNf4) {
    ASSIGN_OR_RETURN(const char* state, bytes_of(packed.state));
    const std::string_view text(state, static_cast<size_t>(packed.state.bytes));
    ASSIGN_OR_RETURN(from.scales_mean, program::ReadScalesMean(text, parameter, entry));
    RETURN_IF_ERROR(CheckLevels(packed.levels, program::kNf4Codes, LevelOf4, bytes_of));
  }
  if (packed.order) {
    ASSIGN_OR_RETURN(const char* order, bytes_of(*packed.order));
    if (*order != 0)
      return absl::InvalidArgumentError(
          absl::StrCat(entry.file, ": ", parameter.key, " has its codes in an order of its own ",
                       "(weight_format ", static_cast<int>(*order), "); accepted: rows, 0"));
  }
  if (packed.scales) {
    ASSIGN_OR_RETURN(from.scales, bytes_of(*packed.scales));
    RETURN_IF_ERROR(CheckLevels(*packed.scale_levels, program::kScaleCodes, LevelOf8, bytes_of));
  }
  return to.Fill(device, parameter, from);
}

}  // namespace snug::weights
