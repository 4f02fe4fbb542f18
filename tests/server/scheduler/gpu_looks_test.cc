#include "server/scheduler/gpu_looks.h"

#include <gtest/gtest.h>

namespace snug::server {
namespace {

GpuUses Taken(int64_t bytes) { return {{"gpu:0", GpuUse{.others_bytes = bytes}}}; }

class GpuLooksTest : public testing::Test {
 protected:
  static absl::Duration At(int64_t seconds) { return absl::Seconds(seconds); }
  GpuLooks looks_{
      SchedulerLimits{.measure_gpus = absl::Seconds(5), .gpu_silence = absl::Seconds(30)}};
};

TEST_F(GpuLooksTest, OneAtATimeEveryFewSeconds) {
  EXPECT_EQ(looks_.Find("gpu:0"), nullptr);
  EXPECT_TRUE(looks_.Begin(At(100)));
  EXPECT_FALSE(looks_.Begin(At(106)));
  EXPECT_TRUE(looks_.End(Taken(7)));
  EXPECT_EQ(looks_.Find("gpu:0")->value().others_bytes, 7);
  EXPECT_TRUE(looks_.Begin(At(106)));
  EXPECT_TRUE(looks_.End(Taken(8)));
  EXPECT_FALSE(looks_.Begin(At(110)));
}

// The driver keeps the question: what was seen before it was asked is nothing to go by for long.
TEST_F(GpuLooksTest, ALookWithoutAnAnswerIsSilence) {
  EXPECT_FALSE(looks_.Silent(At(1000)));
  EXPECT_TRUE(looks_.Begin(At(1000)));
  EXPECT_FALSE(looks_.Silent(At(1030)));
  EXPECT_TRUE(looks_.Silent(At(1031)));
  EXPECT_TRUE(looks_.End(Taken(7)));
  EXPECT_FALSE(looks_.Silent(At(1031)));
}

// An attempt ends during a look, which may have seen it still.
TEST_F(GpuLooksTest, WhatBeganTooEarlyIsNotBelieved) {
  EXPECT_TRUE(looks_.Begin(At(100)));
  EXPECT_TRUE(looks_.End(Taken(7)));
  EXPECT_TRUE(looks_.Begin(At(105)));
  looks_.Forget("gpu:0");
  EXPECT_FALSE(looks_.End(Taken(7)));
  EXPECT_EQ(looks_.Find("gpu:0"), nullptr);
  EXPECT_TRUE(looks_.Begin(At(105)));
  EXPECT_TRUE(looks_.End(Taken(8)));
  EXPECT_EQ(looks_.Find("gpu:0")->value().others_bytes, 8);
}

}  // namespace
}  // namespace snug::server
