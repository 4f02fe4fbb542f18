#include "worker/execute/host_copy.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {
namespace {

constexpr int kStream = 0;

// Calls `act` with whole rows of `all`, as many as a piece holds but one at least.
absl::Status ForEachPiece(const View& all,
                          absl::FunctionRef<absl::Status(const View& part, int64_t first)> act) {
  const int64_t row_bytes = all.width * program::SizeOf(all.dtype);
  const int64_t at_once = std::max<int64_t>(1, kHostPieceBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t first = 0; first < all.rows; first += at_once) {
    RETURN_IF_ERROR(act(all.Rows(first, std::min(at_once, all.rows - first)), first));
  }
  return absl::OkStatus();
}

// The host's memory for the largest of the pieces.
std::unique_ptr<char[]> RoomFor(const View& all) {
  const int64_t row_bytes = all.width * program::SizeOf(all.dtype);
  const int64_t bytes = std::min(all.bytes(), std::max(row_bytes, kHostPieceBytes));
  return std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
}

View At(void* data, const View& like) { return {data, like.rows, like.width, like.dtype}; }

}  // namespace

absl::Status CopyMemory(Device& device, const void* from, int64_t bytes, void* to) {
  if (bytes == 0) return absl::OkStatus();
  return CatchTorch([&] { device.Copy(to, from, bytes, kStream); });
}

absl::Status FillMemory(Device& device, void* to, int byte, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return CatchTorch([&] { device.Fill(to, byte, bytes, kStream); });
}

absl::Status FillRows(Device& device, const View& to, OnRows make) {
  if (device.host_reads_memory()) return CatchTorch([&] { make(to, 0); });
  const std::unique_ptr<char[]> room = RoomFor(to);
  return ForEachPiece(to, [&](const View& part, int64_t first) {
    RETURN_IF_ERROR(CatchTorch([&] { make(At(room.get(), part), first); }));
    return CopyMemory(device, room.get(), part.bytes(), part.data);
  });
}

absl::Status ReadRows(Device& device, const View& from, OnRows use) {
  if (device.host_reads_memory()) return CatchTorch([&] { use(from, 0); });
  const std::unique_ptr<char[]> room = RoomFor(from);
  return ForEachPiece(from, [&](const View& part, int64_t first) {
    RETURN_IF_ERROR(CopyMemory(device, part.data, part.bytes(), room.get()));
    return CatchTorch([&] { use(At(room.get(), part), first); });
  });
}

absl::Status KernelStatus(const char* kernel, kernels::Error error) {
  if (error.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(kernel, ": ", kernels::ToString(error.code), " (", error.parameter, ")"));
}

}  // namespace snug::execute
