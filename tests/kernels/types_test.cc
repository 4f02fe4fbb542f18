// bf16 conversion and names of errors.
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

TEST(ErrorTest, NamesWhatIsWrong) {
  EXPECT_STREQ(ToString(ErrorCode::kBadStride), "bad stride");
  EXPECT_STREQ(ToString(ErrorCode::kNoDevice), "no device for this stream");
  EXPECT_TRUE(Error{}.ok());
}

}  // namespace
}  // namespace snug::kernels
