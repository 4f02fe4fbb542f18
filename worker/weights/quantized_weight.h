// A frozen matrix in 4 or 8 bits on a device, made once when it is loaded, and saved nowhere but
// where workers share it.
//
// The host quantises, for every device, with the kernels' CPU side, whose bytes CUDA's are too. It
// holds a piece of the matrix, its codes, and of nf4 the scales of all blocks (4 bytes for 64
// elements) until these are quantised themselves.
#ifndef WORKER_WEIGHTS_QUANTIZED_WEIGHT_H_
#define WORKER_WEIGHTS_QUANTIZED_WEIGHT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/frozen_linear.h"
#include "worker/execute/device.h"
#include "worker/execute/view.h"
#include "worker/program/program.h"

namespace snug::weights {

class QuantizedWeight {
 public:
  // Puts elements of the matrix from `first` on, row behind row, where `piece` lies: in the host's
  // memory, of the parameter's number type, which is the one that is quantised.
  using ReadElements = absl::FunctionRef<absl::Status(int64_t first, const execute::View& piece)>;

  // In program::PartsOf(parameter).bytes of the device's memory, to be filled.
  static absl::StatusOr<QuantizedWeight> Allocate(execute::Device& device,
                                                  const program::Parameter& parameter);

  // Over memory of so many bytes that outlives it, where it lies already or is to be filled.
  static QuantizedWeight At(const program::Parameter& parameter, char* memory);
  absl::Status Fill(execute::Device& device, const program::Parameter& parameter,
                    ReadElements read) const;

  // As a file has them, in the host's memory at any byte; numbers are fp32. Of int8 (rows, columns)
  // codes and (rows) scales. Of nf4 two codes a byte, and of each block its scale; or, with
  // `scales`, that scale's code, a scale for each group of these, and their mean.
  struct Codes {
    const char* codes = nullptr;
    const char* absmax = nullptr;
    const char* scales = nullptr;
    float scales_mean = 0.0f;
  };
  // Bit for bit, but that nf4's scales in fp32 become codes as well.
  absl::Status Fill(execute::Device& device, const program::Parameter& parameter,
                    const Codes& from) const;

  // Points into the device's memory; moves with the object.
  const kernels::FrozenWeight& weight() const { return weight_; }
  char* data() const { return data_; }
  int64_t counted_bytes() const { return counted_bytes_; }

 private:
  QuantizedWeight() = default;

  execute::DeviceBuffer memory_;  // Its own, if any is.
  char* data_ = nullptr;
  int64_t counted_bytes_ = 0;
  kernels::FrozenWeight weight_;
};

}  // namespace snug::weights

#endif  // WORKER_WEIGHTS_QUANTIZED_WEIGHT_H_
