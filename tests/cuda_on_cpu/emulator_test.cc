// The emulation catches what it is for, and passes what is right.
#include "tests/cuda_on_cpu/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/cuda_on_cpu/bad_kernels.h"
#include "tests/cuda_on_cpu/memory_watch.h"

namespace snug::cuda_on_cpu {
namespace {

using testing::HasSubstr;

// Floats 0, 1, 2, ... that kernels may use.
class Numbers {
 public:
  explicit Numbers(size_t n) : values_(n + 4) {
    std::iota(data(), data() + n, 0.0f);
    AddAllocation(data(), n * sizeof(float));
  }
  ~Numbers() { RemoveAllocation(data()); }
  float* data() {
    const auto at = reinterpret_cast<uintptr_t>(values_.data());
    return values_.data() + (16 - at % 16) % 16 / sizeof(float);
  }
  float operator[](size_t i) { return data()[i]; }

 private:
  std::vector<float> values_;
};

class EmulatorTest : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { SetThreadOrder(GetParam()); }
  void TearDown() override { SetThreadOrder(0); }
};
INSTANTIATE_TEST_SUITE_P(Orders, EmulatorTest, testing::Values(0, 1, 2, 3));

TEST_P(EmulatorTest, SumsInSharedMemory) {
  Numbers x(192), sums(3);
  ASSERT_TRUE(RunTreeSum(x.data(), sums.data(), 3, /*barrier=*/true)) << TakeLastReport();
  EXPECT_EQ(sums[0], 63 * 64 / 2);
  EXPECT_EQ(sums[2], 63 * 64 / 2 + 128 * 64);
}

TEST_P(EmulatorTest, CatchesAMissingBarrier) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(64), sums(1);
  EXPECT_FALSE(RunTreeSum(x.data(), sums.data(), 1, /*barrier=*/false));
  EXPECT_THAT(TakeLastReport(), HasSubstr("a race"));
}

TEST_P(EmulatorTest, CatchesAWriteOutOfBounds) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(100);
  EXPECT_TRUE(RunDouble(x.data(), 100, 128)) << TakeLastReport();
  EXPECT_EQ(x[99], 198.0f);
  EXPECT_FALSE(RunDouble(x.data(), 101, 128));
  EXPECT_THAT(TakeLastReport(), HasSubstr("outside of all memory"));
}

TEST_P(EmulatorTest, ShufflesWithinAWarp) {
  Numbers x(32);
  ASSERT_TRUE(RunWarpSum(x.data(), 32)) << TakeLastReport();
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(x[i], 31 * 32 / 2);
}

TEST_P(EmulatorTest, CatchesAShuffleThatLanesNeverReach) {
  Numbers x(32);
  EXPECT_FALSE(RunWarpSum(x.data(), 20));
  EXPECT_THAT(TakeLastReport(), HasSubstr("__shfl_xor_sync: thread"));
}

TEST_P(EmulatorTest, CatchesADivergentShuffle) {
  Numbers x(32);
  EXPECT_TRUE(RunTwoBranches(x.data(), 32)) << TakeLastReport();
  EXPECT_FALSE(RunTwoBranches(x.data(), 16));
  EXPECT_THAT(TakeLastReport(), HasSubstr("stands in __shfl_xor_sync of line"));
}

// Lanes that have read are ordered before a write by a barrier of the warp; other warps are not,
// and shuffles, votes and a barrier of half the lanes order nobody.
TEST_P(EmulatorTest, CatchesAWriteWhileOthersMayStillRead) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(1);
  EXPECT_TRUE(RunCountReaders(x.data(), 32, WarpFence::kWarp)) << TakeLastReport();
  EXPECT_EQ(x[0], 32.0f);
  for (WarpFence fence : {WarpFence::kNone, WarpFence::kVote, WarpFence::kHalf}) {
    EXPECT_FALSE(RunCountReaders(x.data(), 32, fence));
    EXPECT_THAT(TakeLastReport(), HasSubstr("a race"));
  }
  EXPECT_FALSE(RunCountReaders(x.data(), 64, WarpFence::kWarp));
  EXPECT_THAT(TakeLastReport(), HasSubstr("a race"));
}

TEST_P(EmulatorTest, CatchesAReadOfWhatALaneWroteBeforeAShuffle) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(32);
  EXPECT_TRUE(RunNeighbours(x.data(), WarpFence::kWarp)) << TakeLastReport();
  EXPECT_EQ(x[6], 7.0f);
  for (WarpFence fence : {WarpFence::kNone, WarpFence::kVote}) {
    EXPECT_FALSE(RunNeighbours(x.data(), fence));
    EXPECT_NE(TakeLastReport(), "");  // A race, or what the other lane has not come to write.
  }
}

TEST_P(EmulatorTest, CatchesABlockAboveItsLaunchBounds) {
  Numbers x(1024);
  EXPECT_TRUE(RunBounded(x.data(), 96)) << TakeLastReport();
  EXPECT_FALSE(RunBounded(x.data(), 97));
  EXPECT_THAT(TakeLastReport(), HasSubstr("97 threads: the kernel's launch bounds allow 96"));
  EXPECT_TRUE(RunBoundedByWarps(x.data(), 64)) << TakeLastReport();
  EXPECT_FALSE(RunBoundedByWarps(x.data(), 96));
  EXPECT_THAT(TakeLastReport(), HasSubstr("96 threads: the kernel's launch bounds allow 64"));
  EXPECT_TRUE(RunUnbounded(x.data(), 1024)) << TakeLastReport();
  EXPECT_FALSE(RunUnbounded(x.data(), 1025));
}

// Of ten elements the host has written nine. What a kernel has written may be read.
TEST_P(EmulatorTest, CatchesAReadOfUnwrittenGlobalMemory) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(10), y(10), z(10);
  MarkUnwritten(x.data(), 10 * sizeof(float));
  MarkUnwritten(y.data(), 10 * sizeof(float));
  std::iota(x.data(), x.data() + 9, 0.0f);
  EXPECT_TRUE(RunCopy(x.data(), y.data(), 9)) << TakeLastReport();
  EXPECT_TRUE(RunCopy(y.data(), z.data(), 9)) << TakeLastReport();
  EXPECT_FALSE(RunCopy(x.data(), y.data(), 10));
  EXPECT_THAT(TakeLastReport(), HasSubstr("read of 4 bytes"));
  EXPECT_FALSE(RunCopy(y.data(), z.data(), 10));
  EXPECT_THAT(TakeLastReport(), HasSubstr("global memory that nobody has written"));
}

TEST_P(EmulatorTest, CatchesABarrierThatThreadsNeverReach) {
  Numbers x(64);
  EXPECT_TRUE(RunEarlyExit(x.data(), 64)) << TakeLastReport();
  EXPECT_FALSE(RunEarlyExit(x.data(), 63));
  EXPECT_THAT(TakeLastReport(), HasSubstr("barrier: thread"));
}

TEST_P(EmulatorTest, CatchesAReadOfUnwrittenSharedMemory) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(64);
  EXPECT_TRUE(RunReadUnwritten(x.data(), 64)) << TakeLastReport();
  EXPECT_FALSE(RunReadUnwritten(x.data(), 63));
  EXPECT_THAT(TakeLastReport(), HasSubstr("has not written"));
}

TEST_P(EmulatorTest, CatchesARaceInGlobalMemory) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(1);
  EXPECT_TRUE(RunSameElement(x.data(), /*atomic=*/true)) << TakeLastReport();
  EXPECT_EQ(x[0], 128.0f);
  EXPECT_FALSE(RunSameElement(x.data(), /*atomic=*/false));
  EXPECT_THAT(TakeLastReport(), HasSubstr("a race"));
}

TEST_P(EmulatorTest, CatchesAMisalignedVector) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(8), y(1);
  EXPECT_TRUE(RunWideRead(x.data(), y.data(), 4)) << TakeLastReport();
  EXPECT_EQ(y[0], 4 + 5 + 6 + 7);
  EXPECT_FALSE(RunWideRead(x.data(), y.data(), 1));
  EXPECT_THAT(TakeLastReport(), HasSubstr("not aligned"));
}

TEST_P(EmulatorTest, GoesOnAfterAFailure) {
  if (!Watching()) GTEST_SKIP();
  Numbers x(100);
  EXPECT_FALSE(RunDouble(x.data(), 101, 128));
  EXPECT_NE(TakeLastReport(), "");
  EXPECT_EQ(TakeLastReport(), "");
  EXPECT_TRUE(RunDouble(x.data(), 100, 128));
}

// In the watch's place.
TEST(EmulatorDeathTest, AddressSanitizerCatchesAWriteOutOfBounds) {
  if (Watching()) GTEST_SKIP();
  Numbers x(100);
  EXPECT_TRUE(RunDouble(x.data(), 100, 128)) << TakeLastReport();
  EXPECT_DEATH(RunDouble(x.data(), 105, 128), "heap-buffer-overflow");
}

TEST(EmulatorDeathTest, UndefinedBehaviorSanitizerCatchesAMisalignedVector) {
  if (Watching()) GTEST_SKIP();
  Numbers x(8), y(1);
  EXPECT_TRUE(RunWideRead(x.data(), y.data(), 4)) << TakeLastReport();
  EXPECT_DEATH(RunWideRead(x.data(), y.data(), 1), "misaligned address");
}

}  // namespace
}  // namespace snug::cuda_on_cpu
