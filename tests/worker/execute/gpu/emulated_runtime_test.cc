// The emulated GPU notices what it is there for: tests that pass on it are worth something.
#include "tests/worker/execute/gpu/emulated_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/rows.h"
#include "tests/worker/execute/gpu/test_gpu.h"

namespace snug::execute {
namespace {

using testing::HasSubstr;

TEST(EmulatedRuntimeDeathTest, AHostThatLooksIntoItsMemoryDies) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  const DeviceBuffer buffer = *DeviceBuffer::Allocate(*gpu, 64);
  gpu->Fill(buffer.data(), 0, 64, 0);
  ASSERT_TRUE(gpu->Synchronize().ok());
  const volatile char* there = buffer.data();
  EXPECT_DEATH((void)*there, "");
  EXPECT_DEATH(*const_cast<volatile char*>(there) = 1, "");
}

int CopyWithoutWait(Ahead ahead, bool wait) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu(ahead);
  const DeviceBuffer x = *DeviceBuffer::Allocate(*gpu, 1), y = *DeviceBuffer::Allocate(*gpu, 1);
  gpu->Zero(x.data(), 1, 0);
  EXPECT_TRUE(gpu->Synchronize().ok());
  gpu->stream(1);
  gpu->Fill(x.data(), 1, 1, 0);
  if (wait) {
    gpu->Record(1, 0);
    gpu->Wait(1, 1);
  }
  gpu->Copy(y.data(), x.data(), 1, 1);
  EXPECT_TRUE(gpu->Synchronize().ok());
  char result;
  gpu->Copy(&result, y.data(), 1, 1);
  return result;
}

TEST(EmulatedRuntimeTest, AMissingWaitShowsInOneOrder) {
  EXPECT_EQ(CopyWithoutWait(Ahead::kFirstStream, false), 1);
  EXPECT_EQ(CopyWithoutWait(Ahead::kLastStream, false), 0);
  EXPECT_EQ(CopyWithoutWait(Ahead::kFirstStream, true), 1);
  EXPECT_EQ(CopyWithoutWait(Ahead::kLastStream, true), 1);
}

TEST(EmulatedRuntimeTest, NewMemoryHoldsNothing) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  float value = 0.0f;
  gpu->Copy(&value, DeviceBuffer::Allocate(*gpu, 4)->data(), 4, 0);
  EXPECT_TRUE(std::isnan(value));
}

// ---- products -----------------------------------------------------------------------------------

// A product of (2, 3) and (3, 4) in the first kibibytes of a buffer.
class EmulatedProductTest : public testing::Test {
 protected:
  void SetUp() override {
    gpu_->Fill(buffer_.data(), 0, buffer_.bytes(), 0);
    call_.a = buffer_.data();
    call_.b = buffer_.data() + 1024;
    call_.c = buffer_.data() + 2048;
    call_.m = 2;
    call_.n = 4;
    call_.k = 3;
    call_.a_stride = 3;
    call_.b_stride = call_.c_stride = 4;
  }
  // What the runtime says to the call; empty: it takes it.
  std::string Refusal(const GemmCall& call) {
    try {
      gpu_->runtime().Multiply(call, gpu_->stream(0));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  const std::unique_ptr<GpuDevice> gpu_ = OpenTestGpu();
  const DeviceBuffer buffer_ = *DeviceBuffer::Allocate(*gpu_, 4096);
  GemmCall call_;
};

TEST_F(EmulatedProductTest, TakesTheTypesOfCublassTableAlone) {
  using program::DType;
  const auto refusal = [&](DType dtype, DType c_dtype) {
    call_.dtype = dtype;
    call_.c_dtype = c_dtype;
    return Refusal(call_);
  };
  EXPECT_EQ(refusal(DType::kF32, DType::kF32), "");
  EXPECT_EQ(refusal(DType::kBF16, DType::kF32), "");
  EXPECT_EQ(refusal(DType::kBF16, DType::kBF16), "");
  EXPECT_EQ(refusal(DType::kF32, DType::kBF16),
            "cublasGemmEx_64: CUBLAS_STATUS_NOT_SUPPORTED: fp32 operands into bf16");
  EXPECT_TRUE(gpu_->Synchronize().ok());
}

TEST_F(EmulatedProductTest, RefusesAMisalignedPointer) {
  for (const program::DType dtype : {program::DType::kF32, program::DType::kBF16}) {
    call_.dtype = call_.c_dtype = dtype;
    const int64_t bytes = program::SizeOf(dtype);
    for (const auto& [name, at] :
         {std::pair{"a", &call_.a}, {"b", &call_.b}, {"c", const_cast<const void**>(&call_.c)}}) {
      const void* const aligned = *at;
      *at = static_cast<const char*>(aligned) + bytes;
      EXPECT_EQ(Refusal(call_), "") << name;
      *at = static_cast<const char*>(aligned) + bytes / 2;
      EXPECT_THAT(Refusal(call_), HasSubstr(absl::StrCat(name, " is a misaligned address")));
      *at = nullptr;
      EXPECT_THAT(Refusal(call_), HasSubstr(absl::StrCat(name, " is null")));
      *at = aligned;
    }
  }
}

// Of what lies in memory, transposed or not.
TEST_F(EmulatedProductTest, RefusesALeadingDimensionBelowTheRow) {
  const auto expect = [&](int64_t& stride, int64_t least, const char* name) {
    const int64_t before = stride;
    stride = least;
    EXPECT_EQ(Refusal(call_), "") << name;
    stride = least - 1;
    EXPECT_THAT(Refusal(call_), HasSubstr(absl::StrCat("the leading dimension of ", name)));
    stride = before;
  };
  expect(call_.a_stride, 3, "a");
  expect(call_.b_stride, 4, "b");
  expect(call_.c_stride, 4, "c");
  call_.a_transposed = call_.b_transposed = true;
  expect(call_.a_stride, 2, "a");
  expect(call_.b_stride, 3, "b");
}

TEST_F(EmulatedProductTest, FailsWhereItReadsWhatNobodyHasWritten) {
  const DeviceBuffer fresh = *DeviceBuffer::Allocate(*gpu_, 4096);
  call_.c = fresh.data();
  EXPECT_EQ(Refusal(call_), "");
  EXPECT_TRUE(gpu_->Synchronize().ok());
  call_.add = true;  // To what the first has written.
  EXPECT_EQ(Refusal(call_), "");
  EXPECT_TRUE(gpu_->Synchronize().ok());
  call_.c = fresh.data() + 2048;
  EXPECT_EQ(Refusal(call_), "");
  EXPECT_THAT(gpu_->Synchronize().message(), HasSubstr("memory that nobody has written"));
}

// Where it was launched it went well; as on a GPU, the error shows later, and stays.
TEST(EmulatedRuntimeTest, AFailedKernelFailsWhatComesAfterIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes the watch's place, and does not know this memory";
#endif
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  const DeviceBuffer x = *DeviceBuffer::Allocate(*gpu, 256);
  gpu->Zero(x.data(), x.bytes(), 0);
  const kernels::Error launched =
      kernels::CastRows({.x = x.data(), .y = x.data() + 256, .N = 1, .C = 4}, gpu->stream(0));
  EXPECT_TRUE(launched.ok());
  const absl::Status status = gpu->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(status.message(), HasSubstr("gpu:0 failed"));
  EXPECT_THAT(status.message(), HasSubstr("outside of all memory"));
  EXPECT_THROW(gpu->Fill(x.data(), 0, 4, 0), std::runtime_error);
  EXPECT_EQ(gpu->Synchronize(), status);
}

}  // namespace
}  // namespace snug::execute
