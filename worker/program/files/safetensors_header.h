// The JSON header of a safetensors file: its grammar and its arithmetic, without a file.
#ifndef WORKER_PROGRAM_FILES_SAFETENSORS_HEADER_H_
#define WORKER_PROGRAM_FILES_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::program {

struct HeaderTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // Bytes from the end of the header.
  int64_t end = 0;
};

using HeaderTensors = std::map<std::string, HeaderTensor>;

// Every tensor has a dtype of the format, a shape within the limits, and as many bytes as both ask
// for; where they lie is not looked at. `where` names the file in errors.
absl::StatusOr<HeaderTensors> ParseSafetensorsHeader(std::string_view text,
                                                     const std::string& where);

// The tensors fill the `data_bytes` bytes behind the header: no overlap, no gap, nothing left over.
absl::Status CheckSafetensorsLayout(const HeaderTensors& tensors, int64_t data_bytes,
                                    const std::string& where);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_SAFETENSORS_HEADER_H_
