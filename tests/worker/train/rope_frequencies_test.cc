// Rotary frequencies: what transformers 5.23 on torch 2.11 gives, to the bit.
#include "worker/train/rope_frequencies.h"

#include "gtest/gtest.h"

namespace snug::train {
namespace {

using program::RopeScaling;
using Kind = RopeScaling::Kind;

RopeScaling Llama3(double factor, int64_t original) {
  return {.kind = Kind::kLlama3,
          .factor = factor,
          .low_freq_factor = 1.0,
          .high_freq_factor = 4.0,
          .original_max_positions = original};
}

TEST(RopeFrequenciesTest, DefaultEqualsTransformers) {
  EXPECT_EQ(RopeFrequencies(16, 10000.0, {}),
            std::vector<float>({0x1p0f, 0x1.43d136p-2f, 0x1.99999ap-4f, 0x1.030dc6p-5f,
                                0x1.47ae14p-7f, 0x1.9e7c7p-9f, 0x1.0624dep-10f, 0x1.4b96cp-12f}));
}

TEST(RopeFrequenciesTest, LinearEqualsTransformers) {
  EXPECT_EQ(
      RopeFrequencies(16, 10000.0, {.kind = Kind::kLinear, .factor = 3.0}),
      std::vector<float>({0x1.555556p-2f, 0x1.afc19ep-4f, 0x1.111112p-5f, 0x1.5967b2p-7f,
                          0x1.b4e81ap-9f, 0x1.1452f6p-10f, 0x1.5d867ep-12f, 0x1.ba1e56p-14f}));
}

// Llama 3.2's factor 32 and Llama 3.1's width 128: unscaled, interpolated and divided frequencies.
TEST(RopeFrequenciesTest, Llama3EqualsTransformers) {
  EXPECT_EQ(
      RopeFrequencies(32, 500000.0, Llama3(32.0, 8192)),
      std::vector<float>({0x1p0f, 0x1.c2ef78p-2f, 0x1.8d276p-3f, 0x1.5dc95ap-4f, 0x1.34119p-5f,
                          0x1.0f5386p-6f, 0x1.ddee9ep-8f, 0x1.a4ee4p-9f, 0x1.c26c4p-12f,
                          0x1.46831ap-16f, 0x1.1f91fp-17f, 0x1.fa8b86p-19f, 0x1.be2188p-20f,
                          0x1.88ec2p-21f, 0x1.5a0f4ep-22f, 0x1.30c94ep-23f}));
  const std::vector<float> wide = RopeFrequencies(128, 500000.0, Llama3(8.0, 8192));
  const std::vector<float> middle(wide.begin() + 24, wide.begin() + 40);
  EXPECT_EQ(middle, std::vector<float>(
                        {0x1.ddee9ep-8f, 0x1.8554ecp-8f, 0x1.3d2804p-8f, 0x1.025c6ap-8f,
                         0x1.a4ee4p-9f, 0x1.1bfa0cp-9f, 0x1.67a23ap-10f, 0x1.c12f3cp-11f,
                         0x1.132ba4p-11f, 0x1.47e21p-12f, 0x1.765ba4p-13f, 0x1.90d10cp-14f,
                         0x1.46831ap-14f, 0x1.09fb7ep-14f, 0x1.b15902p-15f, 0x1.610332p-15f}));
}

// A frequency that comes out one unit off if 2 pi is divided by it, instead of multiplied with its
// reciprocal as torch does.
TEST(RopeFrequenciesTest, Llama3RoundsInTorchsOrder) {
  EXPECT_EQ(RopeFrequencies(16, 500000.0, Llama3(3.0, 256)),
            std::vector<float>({0x1p0f, 0x1.8d276p-3f, 0x1.163fa2p-6f, 0x1.3e9f14p-9f,
                                0x1.ee4daep-12f, 0x1.7f6d4p-14f, 0x1.296bbp-16f, 0x1.cd69bep-19f}));
}

// Qwen 2.5's, and one whose ramp begins and ends between two pairs.
TEST(RopeFrequenciesTest, YarnEqualsTransformers) {
  EXPECT_EQ(
      RopeFrequencies(32, 1e6,
                      {.kind = Kind::kYarn, .factor = 4.0, .original_max_positions = 32768}),
      std::vector<float>({0x1.000000p+0f, 0x1.afd136p-2f, 0x1.6c310ep-3f, 0x1.33281ap-4f,
                          0x1.030dc6p-5f, 0x1.b4f7e4p-7f, 0x1.394170p-8f, 0x1.b32624p-10f,
                          0x1.205bc0p-11f, 0x1.61bea0p-13f, 0x1.74eea6p-15f, 0x1.3a8748p-16f,
                          0x1.094564p-17f, 0x1.bf749ep-19f, 0x1.796182p-20f, 0x1.3e47c8p-21f}));
  EXPECT_EQ(
      RopeFrequencies(16, 10000.0,
                      {.kind = Kind::kYarn,
                       .factor = 3.0,
                       .original_max_positions = 64,
                       .beta_fast = 8.0,
                       .beta_slow = 0.5,
                       .truncate = false}),
      std::vector<float>({0x1.000000p+0f, 0x1.f9f800p-3f, 0x1.9d3a80p-5f, 0x1.5967b0p-7f,
                          0x1.b4e81cp-9f, 0x1.1452f6p-10f, 0x1.5d867cp-12f, 0x1.ba1e54p-14f}));
}

}  // namespace
}  // namespace snug::train
