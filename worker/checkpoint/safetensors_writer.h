// A safetensors file from tensors in memory: 8 bytes N, little-endian; N bytes of JSON header,
// padded with spaces to a multiple of 8; the tensors end to end, the wider dtypes first, so that
// each begins at a multiple of its element. No copy of a tensor is made, but for pieces of one that
// the host cannot read.
#ifndef WORKER_CHECKPOINT_SAFETENSORS_WRITER_H_
#define WORKER_CHECKPOINT_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/tensor_bytes.h"

namespace snug::checkpoint {

// A file's shape, known before it is created. Points to the tensors it was made from.
struct SafetensorsLayout {
  std::string header;                       // With the 8 bytes before it.
  std::vector<const TensorBytes*> tensors;  // As they follow one another.
  int64_t file_bytes = 0;
};

// Errors: a key twice or empty, a dtype other than F32, BF16 and F16, bytes that are not the
// shape's. Reads no value: `data` may be null.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const std::vector<TensorBytes>& tensors);

// Into a file created for `layout.file_bytes`; finished. What the host cannot read is copied once.
// OUT_OF_RANGE: a value is NaN or infinite; the file is then for the caller to remove.
absl::StatusOr<FileDigest> WriteSafetensors(const SafetensorsLayout& layout, NewFile file);

// Both, for a single file.
absl::StatusOr<FileDigest> WriteSafetensorsFile(const std::string& path,
                                                const std::vector<TensorBytes>& tensors);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_SAFETENSORS_WRITER_H_
