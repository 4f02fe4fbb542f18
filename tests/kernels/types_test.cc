// bf16 and fp16 conversions, and names of errors.
#include "kernels/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace snug::kernels {
namespace {

// Every bf16 is an fp32 and comes back as it was; a NaN comes back as the one NaN.
TEST(Bf16Test, EveryValueSurvivesTheWayThroughFp32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 value{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    EXPECT_EQ(ToBf16(wide).bits, std::isnan(wide) ? 0x7fc0 : bits);
  }
}

// Ties go to the even neighbour, in both directions; rounding may carry into infinity.
TEST(Bf16Test, RoundsToNearestEven) {
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f).bits, 0x3f80);             // tie, down to even
  EXPECT_EQ(ToBf16(1.0f + 0x1p-7f + 0x1p-8f).bits, 0x3f82);   // tie, up to even
  EXPECT_EQ(ToBf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);  // above the tie
  EXPECT_EQ(ToBf16(-1.0f - 0x1p-8f).bits, 0xbf80);
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(ToBf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  EXPECT_EQ(ToBf16(0x1p-149f).bits, 0x0000);
  EXPECT_EQ(ToBf16(-0.0f).bits, 0x8000);
}

#ifdef __FLT16_MAX__  // The compiler has the type, and converts as IEEE 754 says.
uint16_t HalfOf(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  memcpy(&bits, &half, sizeof(bits));
  return bits;
}

// All 65,536 of them, and back: as the compiler's own type, a NaN as the one of its sign.
TEST(F16Test, EveryValueSurvivesTheWayThroughFp32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 value{static_cast<uint16_t>(bits)};
    _Float16 half;
    memcpy(&half, &value.bits, sizeof(half));
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(half)));
      EXPECT_EQ(ToF16(wide).bits, 0x7e00 | (bits & 0x8000));
    } else {
      EXPECT_EQ(BitsOf(wide), BitsOf(static_cast<float>(half))) << std::hex << bits;
      EXPECT_EQ(ToF16(wide).bits, bits);
    }
  }
}

// Between any two neighbours the middle, which is exact in fp32, and the numbers next to it.
TEST(F16Test, RoundsEveryBoundaryAsTheCompilerDoes) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float below = ToFloat(f16{static_cast<uint16_t>(bits)});
    const float above = bits == 0x7bff ? 65536.0f : ToFloat(f16{static_cast<uint16_t>(bits + 1)});
    const uint32_t middle = BitsOf((below + above) / 2.0f);
    for (uint32_t near : {middle - 1, middle, middle + 1}) {
      for (uint32_t sign : {0u, 0x80000000u}) {
        const float value = FloatOfBits(near | sign);
        ASSERT_EQ(ToF16(value).bits, HalfOf(value)) << value;
      }
    }
  }
}

// Every 97th fp32: subnormal, too large, infinite, both signs.
TEST(F16Test, RoundsAllOfFp32AsTheCompilerDoes) {
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 97) {
    const float value = FloatOfBits(static_cast<uint32_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(ToF16(value).bits, HalfOf(value)) << value;
  }
}
#endif

TEST(F16Test, RoundsToNearestEven) {
  EXPECT_EQ(ToF16(1.0f + 0x1p-11f).bits, 0x3c00);             // tie, down to even
  EXPECT_EQ(ToF16(1.0f + 0x1p-10f + 0x1p-11f).bits, 0x3c02);  // tie, up to even
  EXPECT_EQ(ToF16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(ToF16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToF16(0x1p-25f).bits, 0x0000);  // half of the smallest: a tie
  EXPECT_EQ(ToF16(-0x1.8p-25f).bits, 0x8001);
  EXPECT_EQ(ToF16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(ToF16(-0.0f).bits, 0x8000);
}

TEST(ErrorTest, NamesWhatIsWrong) {
  EXPECT_STREQ(ToString(ErrorCode::kBadStride), "bad stride");
  EXPECT_STREQ(ToString(ErrorCode::kNoDevice), "no device for this stream");
  EXPECT_TRUE(Error{}.ok());
}

}  // namespace
}  // namespace snug::kernels
