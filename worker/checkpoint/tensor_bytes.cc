#include "worker/checkpoint/tensor_bytes.h"

#include <algorithm>
#include <memory>

#include "proto/snug/status_macros.h"

namespace snug::checkpoint {

absl::Status ForEachPiece(const TensorBytes& tensor,
                          const std::function<absl::Status(std::string_view)>& use) {
  const char* from = static_cast<const char*>(tensor.data);
  if (tensor.memory == nullptr) return use({from, static_cast<size_t>(tensor.bytes)});
  const auto piece = std::make_unique_for_overwrite<char[]>(
      static_cast<size_t>(std::min(tensor.bytes, kTensorPieceBytes)));
  for (int64_t done = 0; done < tensor.bytes;) {
    const int64_t count = std::min(tensor.bytes - done, kTensorPieceBytes);
    RETURN_IF_ERROR(tensor.memory->Copy(from + done, count, piece.get()));
    RETURN_IF_ERROR(use({piece.get(), static_cast<size_t>(count)}));
    done += count;
  }
  return absl::OkStatus();
}

absl::Status FillTensor(const OpenFile& file, int64_t begin, const TensorBytes& tensor) {
  if (tensor.memory == nullptr) return file.Read(begin, tensor.bytes, tensor.data);
  char* to = static_cast<char*>(tensor.data);
  return file.ForEachPiece(begin, tensor.bytes, [&](std::string_view piece) {
    const auto count = static_cast<int64_t>(piece.size());
    const absl::Status written = tensor.memory->Copy(piece.data(), count, to);
    to += count;
    return written;
  });
}

}  // namespace snug::checkpoint
