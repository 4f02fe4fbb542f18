// A tensor as checkpoints and exports take it and fill it: a name, a number type, a shape, and
// bytes in memory, which need not be the host's. No copy is made of what the host can read; of
// other memory one piece at a time, of at most kTensorPieceBytes.
#ifndef WORKER_CHECKPOINT_TENSOR_BYTES_H_
#define WORKER_CHECKPOINT_TENSOR_BYTES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/read_file.h"

namespace snug::checkpoint {

// Memory that the host cannot read by itself.
class TensorMemory {
 public:
  virtual ~TensorMemory() = default;
  // From it to the host's memory or the other way, done when the call returns.
  virtual absl::Status Copy(const void* from, int64_t bytes, void* to) const = 0;
};

// Owned by the caller, as its memory is.
struct TensorBytes {
  std::string key;
  std::string dtype;  // "F32", "BF16", "U8"
  std::vector<int64_t> shape;
  void* data = nullptr;
  int64_t bytes = 0;
  const TensorMemory* memory = nullptr;  // Where `data` lies; null: in the host's.
};

inline constexpr int64_t kTensorPieceBytes = 4 << 20;  // A multiple of 8.

// Calls `use` with one piece after another of the tensor's bytes, or with all of them where they
// lie; stops at its first error. A piece has a multiple of 8 bytes, except the last.
absl::Status ForEachPiece(const TensorBytes& tensor,
                          const std::function<absl::Status(std::string_view)>& use);

// The tensor's bytes from byte `begin` of the file on.
absl::Status FillTensor(const OpenFile& file, int64_t begin, const TensorBytes& tensor);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_TENSOR_BYTES_H_
