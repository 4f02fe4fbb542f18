// Matrices in codes, as bitsandbytes and transformers save them:
//   kind     a byte: 4 for nf4, anything else for int8
//   shape    a byte for the rows and one for the columns of the parameter that is read
//   header   of the safetensors file, up to the first zero byte; what lies behind fits it
//   state    the rest: the bytes of quant_state
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "proto/snug/utf8.h"
#include "worker/program/files/json.h"
#include "worker/program/files/packed_tensors.h"
#include "worker/program/files/safetensors_header.h"

namespace {

using namespace snug::program;

constexpr size_t kHeader = 3;  // Where it begins.
constexpr char kFile[] = "model.safetensors";

void Check(bool holds) {
  if (!holds) abort();
}

// It travels in a protobuf string and stands in a log.
void CheckMessage(const std::string& text) {
  Check(snug::ValidUtf8(text) == text);
  Check(std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }));
}

// As ReadSafetensorsHeader has it of a file.
TensorIndex IndexOf(std::string_view header) {
  TensorIndex index;
  const auto tensors = ParseSafetensorsHeader(header, kFile);
  if (!tensors.ok()) return index;
  for (const auto& [name, tensor] : *tensors)
    index[name] = {.dtype = tensor.dtype,
                   .shape = tensor.shape,
                   .file = kFile,
                   .begin = tensor.begin,
                   .bytes = tensor.end - tensor.begin};
  return index;
}

// Tensors and their places, in sums that wrap around.
struct Sums {
  uint64_t tensors = 0, begins = 0, bytes = 0;

  bool operator==(const Sums&) const = default;
  void Add(const TensorEntry& entry) {
    ++tensors;
    begins += static_cast<uint64_t>(entry.begin);
    bytes += static_cast<uint64_t>(entry.bytes);
    if (entry.packed == nullptr) return;
    const PackedTensor& packed = *entry.packed;
    Add(packed.absmax);
    for (const auto* part : {&packed.scales, &packed.scale_levels, &packed.order})
      if (*part) Add(**part);
    if (packed.kind != Quantization::kNf4) return;
    Add(packed.levels);
    Add(packed.state);
  }
};

Sums SumsOf(const TensorIndex& index) {
  Sums sums;
  for (const auto& [name, entry] : index) sums.Add(entry);
  return sums;
}

bool Has(const TensorEntry& entry, std::string_view dtype, int64_t bytes) {
  return entry.dtype == dtype && entry.bytes == bytes;
}

// Whether each part is of the type and as long as it is read for the parameter.
bool Fits(const Parameter& parameter, const TensorEntry& entry) {
  const int64_t rows = parameter.shape[0], n = rows * parameter.shape[1];
  const PackedTensor& packed = *entry.packed;
  if (packed.kind == Quantization::kInt8)
    return entry.shape == parameter.shape && Has(entry, "I8", n) &&
           Has(packed.absmax, "F32", 4 * rows) && (!packed.order || Has(*packed.order, "U8", 1));
  const int64_t blocks = (n + 63) / 64, groups = (blocks + 255) / 256;
  if (!Has(entry, "U8", (n + 1) / 2) || !Has(packed.levels, "F32", 4 * 16)) return false;
  if (!packed.scales) return Has(packed.absmax, "F32", 4 * blocks);
  return Has(packed.absmax, "U8", blocks) && Has(*packed.scales, "F32", 4 * groups) &&
         Has(packed.scale_levels.value(), "F32", 4 * 256);
}

// What bitsandbytes writes of the parameter is taken.
void CheckGoodState(const Parameter& parameter, const TensorEntry& entry) {
  const bool nested = entry.packed->scales.has_value();
  const std::string state = absl::StrCat(
      R"({"quant_type":"nf4","blocksize":64,"dtype":"float32","shape":[)", parameter.shape[0], ",",
      parameter.shape[1], "]", nested ? R"(,"nested_blocksize":256,"nested_offset":0.5)" : "", "}");
  Check(ReadScalesMean(state, parameter, entry).value_or(-1.0f) == (nested ? 0.5f : 0.0f));
}

// A state that is taken is of blocks of 64 and of the matrix's shape, and of no other.
void CheckState(std::string_view state, Parameter parameter, const TensorEntry& entry) {
  const auto mean = ReadScalesMean(state, parameter, entry);
  if (!mean.ok()) return;
  const bool nested = entry.packed->scales.has_value();
  Check(std::isfinite(*mean) && (nested || *mean == 0.0f));
  const auto json = ParseJson(state, "state", JsonLimits());
  Check(json.ok() && json->value("quant_type", "") == "nf4" && json->value("blocksize", 0) == 64);
  Check(json->contains("nested_offset") == nested);
  ++parameter.shape[0];
  Check(!ReadScalesMean(state, parameter, entry).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < kHeader) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const size_t zero = std::min(text.find('\0', kHeader), size);
  const std::string_view state = text.substr(std::min(zero + 1, size));
  const TensorIndex index = IndexOf(text.substr(kHeader, zero - kHeader));
  const bool nf4 = bytes[0] == '4';
  Parameter parameter{.shape = {bytes[1], bytes[2]},
                      .quantization = nf4 ? Quantization::kNf4 : Quantization::kInt8};
  const auto packed = WithPacked(index, parameter.quantization);
  if (!packed.ok()) {
    CheckMessage(std::string(packed.status().message()));
    return 0;
  }
  // Nothing of the file is lost, or belongs to two.
  Check(SumsOf(*packed) == SumsOf(index));
  for (const auto& [name, entry] : *packed) {
    Check(!name.ends_with(nf4 ? ".quant_state.bitsandbytes__nf4" : ".SCB"));
    if (entry.packed == nullptr) continue;
    Check(entry.packed->kind == parameter.quantization);
    parameter.key = name;
    const std::string wrong = WrongCodes(parameter, entry);
    CheckMessage(wrong);
    Check(wrong.empty() == Fits(parameter, entry));
    Parameter plain = parameter;
    plain.quantization = Quantization::kNone;
    Check(!WrongCodes(plain, entry).empty());
    if (!nf4) continue;
    CheckGoodState(parameter, entry);
    CheckState(state, parameter, entry);
  }
  return 0;
}
