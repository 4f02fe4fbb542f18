// Matrices that a checkpoint holds in codes, as bitsandbytes and transformers save them (files with
// a quantization_config of quant_method bitsandbytes). K is a matrix's name, M.weight:
//
//   nf4    K                                  U8   two codes a byte (kernels/nf4.h)
//          K.absmax                           F32  a scale per block of 64, or U8: its code
//          K.nested_absmax                    F32  where these are codes: a scale per 256 of them
//          K.nested_quant_map, K.quant_map    F32  the levels of 8 and of 4 bits
//          K.quant_state.bitsandbytes__nf4    U8   JSON: shape, sizes of blocks, the scales' mean
//   int8   K                                  I8   a row of codes per row (kernels/int8_weight.h)
//          M.SCB                              F32  a scale per row
//          M.weight_format                    U8   0: rows, the only order that is read; may be
//          absent
#ifndef WORKER_PROGRAM_FILES_PACKED_TENSORS_H_
#define WORKER_PROGRAM_FILES_PACKED_TENSORS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/program.h"

namespace snug::program {

// Codes of 4 bits, and of 8 of their scales.
inline constexpr int64_t kNf4Codes = 16, kScaleCodes = 256;

// What lies beside the codes.
struct PackedTensor {
  Quantization kind = Quantization::kNone;
  TensorEntry absmax;
  std::optional<TensorEntry> scales, scale_levels;  // Where absmax has codes.
  TensorEntry levels, state;                        // Of nf4.
  std::optional<TensorEntry> order;                 // Of int8.
};

// Makes one entry of each matrix and what belongs to it (TensorEntry::packed). InvalidArgument, by
// name: a part is missing.
absl::StatusOr<TensorIndex> WithPacked(TensorIndex index, Quantization kind);

// The modules outside the layers whose matrix is in codes, tables of tokens left out.
std::vector<std::string> CodesOutsideLayers(const TensorIndex& index);

// Why the entry, which has `packed`, cannot be the parameter's codes, as far as a header says it;
// empty: it can.
std::string WrongCodes(const Parameter& parameter, const TensorEntry& entry);

// Of nf4: the mean of the scales in `state`; 0 where the scales are no codes. InvalidArgument, by
// the tensor's name: it is no such JSON, or is not about the parameter in the format's blocks.
absl::StatusOr<float> ReadScalesMean(std::string_view state, const Parameter& parameter,
                                     const TensorEntry& entry);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_PACKED_TENSORS_H_
