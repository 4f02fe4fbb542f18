// LibTorch throws; nothing else in the worker does. The one place where its exceptions, and those
// of our allocator that pass through it, become a Status.
#ifndef WORKER_EXECUTE_TORCH_ERRORS_H_
#define WORKER_EXECUTE_TORCH_ERRORS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace snug::execute {

// ResourceExhausted when the cap or an op's workspace was too small; Internal for everything else
// that LibTorch objects to.
absl::Status CatchTorch(absl::FunctionRef<void()> call);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_TORCH_ERRORS_H_
