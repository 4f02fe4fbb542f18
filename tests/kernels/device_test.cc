// The memory that tests give to kernels.
#include "tests/kernels/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/types.h"

namespace snug::kernels {
namespace {

TEST(DeviceTest, NewMemoryIsNaNInEveryNumberType) {
  const SharedVector<float> floats(3);
  const SharedVector<bf16> bf16s(3);
  const SharedVector<f16> f16s(3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(std::isnan(floats[i]));
    EXPECT_TRUE(std::isnan(ToFloat(bf16s[i])));
    EXPECT_TRUE(std::isnan(ToFloat(f16s[i])));
  }
  EXPECT_EQ(SharedVector<int32_t>(2, 7), (SharedVector<int32_t>{7, 7}));
}

// One test cannot take a GPU that others use; what was freed may be taken again.
TEST(DeviceDeathTest, MemoryOnAGpuIsCapped) {
  if (OnCpu()) GTEST_SKIP() << "the machine's own limit";
  EXPECT_DEATH(AllocateShared(kMostSharedBytes + 1), "a test asks for 17179869185 bytes");
  FreeShared(AllocateShared(256));
  void* some = AllocateShared(256);
  EXPECT_DEATH(AllocateShared(kMostSharedBytes - 255), "above the 256 that it has");
  FreeShared(some);
}

}  // namespace
}  // namespace snug::kernels
