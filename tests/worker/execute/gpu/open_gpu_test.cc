// Devices by name, in a worker with GPUs. What is tested here needs none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/execute/device.h"

namespace snug::execute {
namespace {

using testing::HasSubstr;

TEST(OpenGpuTest, AGpuThatIsNotThereIsRefusedByName) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  const auto device = OpenDevice("gpu:99", /*threads=*/1);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(device.status().message(), HasSubstr("device \"gpu:99\": "));
  EXPECT_THAT(device.status().message(), testing::Not(HasSubstr("built without GPUs")));
}

TEST(OpenGpuTest, TheCpuOpensBesideIt) {
  const auto device = OpenDevice("cpu:0", /*threads=*/1);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE((*device)->host_reads_memory());
}

}  // namespace
}  // namespace snug::execute
