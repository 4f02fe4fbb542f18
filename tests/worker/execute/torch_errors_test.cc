// What LibTorch and our allocator throw, as the Status that says whose fault it is.
#include "worker/execute/torch_errors.h"

#include <c10/util/Exception.h>

#include <stdexcept>

#include "gtest/gtest.h"
#include "worker/execute/allocator.h"

namespace snug::execute {
namespace {

template <typename Error>
absl::StatusCode CodeOf(const Error& error) {
  return CatchTorch([&] { throw error; }).code();
}

TEST(TorchErrorsTest, MemoryThatIsNotThereIsNoMistake) {
  const c10::SourceLocation here = {"function", "file", 1};
  EXPECT_EQ(CodeOf(CapExceeded("cap")), absl::StatusCode::kResourceExhausted);
  // cudaErrorMemoryAllocation, and an illegal address.
  EXPECT_EQ(CodeOf(c10::AcceleratorError(here, 2, "CUDA error: out of memory")),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(c10::AcceleratorError(here, 700, "CUDA error")), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(c10::Error(here, "shapes")), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOf(std::runtime_error("cudaMemcpyAsync")), absl::StatusCode::kInternal);
}

// No cap makes an op's slice larger.
TEST(TorchErrorsTest, AnOpThatTakesMoreThanItDeclaresIsAMistake) {
  EXPECT_EQ(CodeOf(SliceExceeded("slice")), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace snug::execute
