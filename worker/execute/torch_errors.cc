#include "worker/execute/torch_errors.h"

#include <c10/util/Exception.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "worker/execute/allocator.h"

namespace snug::execute {

absl::Status CatchTorch(absl::FunctionRef<void()> call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const CapExceeded& error) {
    return absl::ResourceExhaustedError(error.what());
  } catch (const SliceExceeded& error) {
    return absl::InternalError(
        absl::StrCat(error.what(), ": what the op declares is wrong, whatever memory the job has"));
  } catch (const c10::AcceleratorError& error) {
    // A kernel's code is loaded at its first launch, when the GPU may have no room for it.
    constexpr int kCudaErrorMemoryAllocation = 2;
    const std::string text = absl::StrCat("LibTorch: ", error.what_without_backtrace());
    return error.get_error_code() == kCudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                                                : absl::InternalError(text);
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
  }
}

}  // namespace snug::execute
