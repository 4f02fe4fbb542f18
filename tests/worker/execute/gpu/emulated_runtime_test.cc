// The emulated GPU notices what it is there for: tests that pass on it are worth something.
#include "tests/worker/execute/gpu/emulated_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

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

// Where it was launched it went well; as on a GPU, the error shows later, and stays.
TEST(EmulatedRuntimeTest, AFailedKernelFailsWhatComesAfterIt) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes the watch's place, and does not know this memory";
#endif
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  const DeviceBuffer x = *DeviceBuffer::Allocate(*gpu, 256);
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
