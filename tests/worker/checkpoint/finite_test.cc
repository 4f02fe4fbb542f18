#include "worker/checkpoint/finite.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

namespace snug::checkpoint {
namespace {

constexpr int64_t kSizes[] = {1, 31, 33, 4095, 4096, 4097, 12'345};

// The largest and smallest finite values, zeros and subnormals are no reason to stop a job.
TEST(FiniteTest, AcceptsEveryFiniteValue) {
  const std::vector<float> edges = {0.0f,
                                    -0.0f,
                                    std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::lowest(),
                                    std::numeric_limits<float>::denorm_min(),
                                    1.0f};
  EXPECT_EQ(FirstNonFiniteF32(edges.data(), edges.size()), -1);
  const std::vector<uint16_t> bf16 = {0x0000, 0x8000, 0x7f7f, 0xff7f, 0x0001, 0x3f80};
  EXPECT_EQ(FirstNonFiniteBf16(bf16.data(), bf16.size()), -1);
}

// Each kind of bad value at each place, blocks' edges among them.
TEST(FiniteTest, FindsTheFirstBadFloatWhereverItIs) {
  for (const int64_t size : kSizes) {
    for (const uint32_t bad : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
      for (int64_t place = 0; place < size; place += 1 + size / 7) {
        std::vector<float> values(size, 1.5f);
        values[place] = std::bit_cast<float>(bad);
        values[size - 1] = std::bit_cast<float>(bad);
        ASSERT_EQ(FirstNonFiniteF32(values.data(), size), place) << size << " " << bad;
      }
    }
  }
}

TEST(FiniteTest, FindsTheFirstBadBf16WhereverItIs) {
  for (const int64_t size : kSizes) {
    for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0x7f81}) {
      for (int64_t place = 0; place < size; place += 1 + size / 7) {
        std::vector<uint16_t> values(size, 0x3fc0);
        values[place] = bad;
        ASSERT_EQ(FirstNonFiniteBf16(values.data(), size), place) << size << " " << bad;
      }
    }
  }
}

// A mapped file's tensor may begin anywhere.
TEST(FiniteTest, TakesUnalignedMemory) {
  std::vector<char> memory(1 + 3 * sizeof(float));
  const float values[] = {1.0f, 2.0f, std::numeric_limits<float>::quiet_NaN()};
  std::memcpy(memory.data() + 1, values, sizeof(values));
  EXPECT_EQ(FirstNonFiniteF32(memory.data() + 1, 3), 2);
  EXPECT_EQ(FirstNonFinite("F32", memory.data() + 1, 8), -1);
  EXPECT_EQ(FirstNonFinite("F32", memory.data() + 1, 12), 2);
}

}  // namespace
}  // namespace snug::checkpoint
