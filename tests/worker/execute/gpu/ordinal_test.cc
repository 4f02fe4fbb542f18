#include "worker/execute/gpu/ordinal.h"

#include <gtest/gtest.h>

namespace snug::execute {
namespace {

TEST(OrdinalTest, OneVisibleDeviceIsTheFirst) {
  EXPECT_EQ(CudaOrdinal(3, "3"), 0);
  EXPECT_EQ(CudaOrdinal(3, "GPU-5a1f"), 0);
}

TEST(OrdinalTest, OtherwiseTheNumberIsCudas) {
  EXPECT_EQ(CudaOrdinal(3, nullptr), 3);
  EXPECT_EQ(CudaOrdinal(3, ""), 3);
  EXPECT_EQ(CudaOrdinal(1, "4,5,6"), 1);
}

}  // namespace
}  // namespace snug::execute
