// LibTorch throws; nothing else in the worker does. The one place where its exceptions, and those
// of our allocator that pass through it, become a Status.
#ifndef WORKER_EXECUTE_TORCH_ERRORS_H_
#define WORKER_EXECUTE_TORCH_ERRORS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace snug::execute {

// ResourceExhausted when the cap was too small; Internal for everything else that LibTorch objects
// to, and for an op that takes more workspace than it declares: a slice has the same bytes whatever
// the cap is, so another try under a larger one would fail at the same op.
absl::Status CatchTorch(absl::FunctionRef<void()> call);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_TORCH_ERRORS_H_
