// Devices by name, in a worker without GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "worker/execute/device.h"

namespace snug::execute {
namespace {

using testing::HasSubstr;

TEST(OpenDeviceTest, OpensTheCpu) {
  const auto device = OpenDevice("cpu:0", /*threads=*/3);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->name(), "cpu:0");
  EXPECT_EQ((*device)->machine().threads, 3);
  EXPECT_TRUE((*device)->machine().cpu);
  EXPECT_EQ((*device)->stream(0), nullptr);
}

// By the kernel's word, whoever asked for it.
TEST(OpenDeviceTest, TheHostSeesWhatThisProcessHasTouched) {
  constexpr int64_t kBytes = 64 << 20;
  const auto device = OpenDevice("cpu:0", /*threads=*/1);
  ASSERT_TRUE(device.ok()) << device.status();
  const int64_t before = (*device)->SeenBytes();
  const std::vector<char> touched(kBytes, 'x');
  EXPECT_GT((*device)->SeenBytes() - before, kBytes * 9 / 10);
  EXPECT_EQ(touched.back(), 'x');
}

TEST(OpenDeviceTest, AGpuNeedsAWorkerWithGpus) {
  const auto device = OpenDevice("gpu:0", 1);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(device.status().message(), HasSubstr("device \"gpu:0\""));
  EXPECT_THAT(device.status().message(), HasSubstr("built without GPUs"));
}

TEST(OpenDeviceTest, OtherNamesAreNone) {
  for (const char* name : {"", "cpu", "cpu:", "cpu:x", "gpu:-1", "tpu:0"}) {
    EXPECT_EQ(OpenDevice(name, 1).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

}  // namespace
}  // namespace snug::execute
