// Bytes between the host and a device's memory: when the call returns the host has what it gets,
// and may use again what it gave. Where the host reads that memory itself nothing is made twice;
// elsewhere the host holds kHostPieceBytes at a time.
//
// All on the device's stream 0, behind what was issued there. Nothing here is for the inside of a
// tape: ops have OpRun's.
#ifndef WORKER_EXECUTE_HOST_COPY_H_
#define WORKER_EXECUTE_HOST_COPY_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/types.h"
#include "worker/execute/device.h"
#include "worker/execute/view.h"

namespace snug::execute {

// Large enough that what a copy costs beside its bytes does not count, small beside any model.
inline constexpr int64_t kHostPieceBytes = 4 << 20;

// From the device's memory or the host's to either.
absl::Status CopyMemory(Device& device, const void* from, int64_t bytes, void* to);
// Every byte of the device's memory there.
absl::Status FillMemory(Device& device, void* to, int byte, int64_t bytes);

// What is done with rows of a view, of which `rows` are those from `first` on, where the host has
// them. May throw what LibTorch throws.
using OnRows = absl::FunctionRef<void(const View& rows, int64_t first)>;
// `make` fills all rows of `to`, some at a time.
absl::Status FillRows(Device& device, const View& to, OnRows make);
// `use` sees all rows of `from` in their order, some at a time.
absl::Status ReadRows(Device& device, const View& from, OnRows use);

// What a kernel answers: Internal, for its errors are mistakes of this program.
absl::Status KernelStatus(const char* kernel, kernels::Error error);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_HOST_COPY_H_
