#include "proto/snug/duration.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug {
namespace {

TEST(DurationTest, EachUnit) {
  EXPECT_EQ(ParseSeconds("45s").value(), 45);
  EXPECT_EQ(ParseSeconds("90m").value(), 5400);
  EXPECT_EQ(ParseSeconds("12h").value(), 43200);
  EXPECT_EQ(ParseSeconds("30d").value(), 2592000);
  EXPECT_EQ(ParseSeconds("1000000000d").value(), int64_t{86400} * 1'000'000'000);
}

TEST(DurationTest, WhatIsNoTimeIsNamed) {
  for (const char* text : {"", "d", "30", "30w", "0s", "-1h", "1.5h", "1000000001s",
                           "99999999999999999999d", "12hh"}) {
    const absl::Status status = ParseSeconds(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr(std::string("\"") + text + "\" is no time: write 30d"));
  }
}

}  // namespace
}  // namespace snug
