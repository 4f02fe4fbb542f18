#include "proto/snug/bytes.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug {
namespace {

using ::testing::HasSubstr;

TEST(BytesTest, ReadsEveryUnitToTheByte) {
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("7B"), 7);
  EXPECT_EQ(*ParseBytes("3KiB"), 3072);
  EXPECT_EQ(*ParseBytes("12GiB"), 12'884'901'888);
  EXPECT_EQ(*ParseBytes("2tib"), 2'199'023'255'552);
  EXPECT_EQ(*ParseBytes("500MB"), 500'000'000);
  EXPECT_EQ(*ParseBytes("1.5 GiB"), 1'610'612'736);
  EXPECT_EQ(*ParseBytes(" 0.000000001 GB "), 1);
  EXPECT_EQ(*ParseBytes("0.3GiB"), 322'122'547);  // 322122547.2
}

TEST(BytesTest, HoldsTheLargestAndRefusesOneMore) {
  EXPECT_EQ(*ParseBytes("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_THAT(ParseBytes("9223372036854775808").status().message(), HasSubstr("too large"));
  EXPECT_EQ(*ParseBytes("8388607TiB"), int64_t{8388607} << 40);
  EXPECT_THAT(ParseBytes("8388608TiB").status().message(), HasSubstr("too large"));
  EXPECT_THAT(ParseBytes("9999999999999999999.999999999TiB").status().message(),
              HasSubstr("too large"));
  EXPECT_THAT(ParseBytes(std::string(1000, '9')).status().message(), HasSubstr("too large"));
}

TEST(BytesTest, RefusesWhatIsNoSizeAndSaysWhatToWrite) {
  for (const char* bad : {"", "GiB", "-1", "+1", "1e9", "12G", "12 Gi", "1.GiB", ".5GiB", "1,5GiB",
                          "0x10", "12GiB x", "1.0000000001GiB", "nan"}) {
    const absl::Status status = ParseBytes(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("write for example 12GiB")) << bad;
  }
  EXPECT_THAT(ParseBytes("12G").status().message(), HasSubstr("unknown unit \"G\""));
}

TEST(BytesTest, WritesTheLargestUnitWithOneDecimalUnlessWhole) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1 KiB");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((int64_t{1} << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(int64_t{4} << 30), "4 GiB");
  EXPECT_EQ(FormatBytes(18'468'359'373), "17.2 GiB");
  EXPECT_EQ(FormatBytes(int64_t{3000} << 40), "3000 TiB");
  EXPECT_EQ(FormatBytes(-2048), "-2 KiB");
}

}  // namespace
}  // namespace snug
