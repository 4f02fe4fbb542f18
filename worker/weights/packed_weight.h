// A frozen matrix from the codes that a checkpoint holds it in (worker/program/files/
// packed_tensors.h).
#ifndef WORKER_WEIGHTS_PACKED_WEIGHT_H_
#define WORKER_WEIGHTS_PACKED_WEIGHT_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/program/files/safetensors.h"
#include "worker/weights/quantized_weight.h"

namespace snug::weights {

// Bytes of a tensor in the host's memory.
using BytesOf = absl::FunctionRef<absl::StatusOr<const char*>(const program::TensorEntry&)>;

// The codes as they are, so that the base is the one that its author has measured.
// The entry has been held to the parameter (program::CheckBaseWeights). InvalidArgument: the codes
// are to other levels, of other blocks, or in another order than the format's; or as `bytes_of`.
absl::Status FillFromCodes(execute::Device& device, const program::Parameter& parameter,
                           const program::TensorEntry& entry, const QuantizedWeight& to,
                           BytesOf bytes_of);

}  // namespace snug::weights

#endif  // WORKER_WEIGHTS_PACKED_WEIGHT_H_
