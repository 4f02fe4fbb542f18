// Rotary embedding: frequencies against transformers' own, the table, the rotation.
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

std::vector<float> Frequencies(RopeFrequencyParams p) {
  std::vector<float> inv_freq(p.D / 2, std::nanf(""));
  p.inv_freq = inv_freq.data();
  EXPECT_TRUE(RopeFrequencies(p).ok());
  return inv_freq;
}

// What transformers 5.23 on torch 2.11 gives, to the bit.
TEST(RopeFrequenciesTest, DefaultEqualsTransformers) {
  EXPECT_EQ(Frequencies({.D = 16, .theta = 10000.0}),
            std::vector<float>({0x1p0f, 0x1.43d136p-2f, 0x1.99999ap-4f, 0x1.030dc6p-5f,
                                0x1.47ae14p-7f, 0x1.9e7c7p-9f, 0x1.0624dep-10f, 0x1.4b96cp-12f}));
}

TEST(RopeFrequenciesTest, LinearEqualsTransformers) {
  EXPECT_EQ(
      Frequencies({.D = 16, .theta = 10000.0, .scaling = RopeScaling::kLinear, .factor = 3.0}),
      std::vector<float>({0x1.555556p-2f, 0x1.afc19ep-4f, 0x1.111112p-5f, 0x1.5967b2p-7f,
                          0x1.b4e81ap-9f, 0x1.1452f6p-10f, 0x1.5d867ep-12f, 0x1.ba1e56p-14f}));
}

// Llama 3.2's factor 32 and Llama 3.1's width 128: unscaled, interpolated and divided frequencies.
TEST(RopeFrequenciesTest, Llama3EqualsTransformers) {
  EXPECT_EQ(
      Frequencies({.D = 32,
                   .theta = 500000.0,
                   .scaling = RopeScaling::kLlama3,
                   .factor = 32.0,
                   .low_freq_factor = 1.0,
                   .high_freq_factor = 4.0,
                   .original_max_position = 8192.0}),
      std::vector<float>({0x1p0f, 0x1.c2ef78p-2f, 0x1.8d276p-3f, 0x1.5dc95ap-4f, 0x1.34119p-5f,
                          0x1.0f5386p-6f, 0x1.ddee9ep-8f, 0x1.a4ee4p-9f, 0x1.c26c4p-12f,
                          0x1.46831ap-16f, 0x1.1f91fp-17f, 0x1.fa8b86p-19f, 0x1.be2188p-20f,
                          0x1.88ec2p-21f, 0x1.5a0f4ep-22f, 0x1.30c94ep-23f}));
  const std::vector<float> wide = Frequencies({.D = 128,
                                               .theta = 500000.0,
                                               .scaling = RopeScaling::kLlama3,
                                               .factor = 8.0,
                                               .low_freq_factor = 1.0,
                                               .high_freq_factor = 4.0,
                                               .original_max_position = 8192.0});
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
  EXPECT_EQ(Frequencies({.D = 16,
                         .theta = 500000.0,
                         .scaling = RopeScaling::kLlama3,
                         .factor = 3.0,
                         .low_freq_factor = 1.0,
                         .high_freq_factor = 4.0,
                         .original_max_position = 256.0}),
            std::vector<float>({0x1p0f, 0x1.8d276p-3f, 0x1.163fa2p-6f, 0x1.3e9f14p-9f,
                                0x1.ee4daep-12f, 0x1.7f6d4p-14f, 0x1.296bbp-16f, 0x1.cd69bep-19f}));
}

TEST(RopeFrequenciesTest, RefusesBadArguments) {
  float inv_freq[4];
  const auto refused = [&](auto change) {
    RopeFrequencyParams p = {.inv_freq = inv_freq,
                             .D = 8,
                             .scaling = RopeScaling::kLlama3,
                             .factor = 8.0,
                             .original_max_position = 8192.0};
    change(p);
    return Name(RopeFrequencies(p));
  };
  using P = RopeFrequencyParams;
  EXPECT_EQ(refused([](P&) {}), "ok: ");
  EXPECT_EQ(refused([](P& p) { p.inv_freq = nullptr; }), "null pointer: inv_freq");
  EXPECT_EQ(refused([](P& p) { p.D = 7; }), "bad shape: D");
  EXPECT_EQ(refused([](P& p) { p.theta = 0.0; }), "bad value: theta");
  EXPECT_EQ(refused([](P& p) { p.factor = -1.0; }), "bad value: factor");
  EXPECT_EQ(refused([](P& p) { p.high_freq_factor = 1.0; }), "bad value: high_freq_factor");
  EXPECT_EQ(refused([](P& p) { p.original_max_position = 0.0; }),
            "bad value: original_max_position");
}

// Positions of either type, in any order, as packed documents have them.
TEST(RopeTableTest, MatchesReference) {
  const std::vector<int32_t> narrow = {0, 1, 2, 0, 1, 16383, 131071};
  const std::vector<int64_t> wide(narrow.begin(), narrow.end());
  for (int64_t D : {2, 6, 64, 66}) {
    std::vector<float> inv_freq = Frequencies({.D = D, .theta = 500000.0});
    Matrix cos(1, 7 * D / 2), sin(1, 7 * D / 2), cos64(1, 7 * D / 2), sin64(1, 7 * D / 2);
    RopeTableParams p = {.positions = narrow.data(),
                         .inv_freq = inv_freq.data(),
                         .cos = cos.floats(),
                         .sin = sin.floats(),
                         .N = 7,
                         .D = D};
    ASSERT_TRUE(RopeTable(p, nullptr).ok());
    const auto angle = [&](int64_t k) {
      return static_cast<double>(static_cast<float>(narrow[k / (D / 2)]) * inv_freq[k % (D / 2)]);
    };
    ExpectClose(cos, Map(cos, [&](int64_t, int64_t k) { return std::cos(angle(k)); }), 2.0);
    ExpectClose(sin, Map(sin, [&](int64_t, int64_t k) { return std::sin(angle(k)); }), 2.0);
    p.positions = wide.data();
    p.position_type = IndexType::kI64;
    p.cos = cos64.floats();
    p.sin = sin64.floats();
    ASSERT_TRUE(RopeTable(p, nullptr).ok());
    EXPECT_EQ(cos.bytes(), cos64.bytes());
    EXPECT_EQ(sin.bytes(), sin64.bytes());
  }
}

TEST(RopeTableTest, RefusesANegativePosition) {
  const int32_t positions[] = {0, -1};
  float inv_freq[1], cos[2] = {7.0f, 7.0f}, sin[2];
  RopeTableParams p = {
      .positions = positions, .inv_freq = inv_freq, .cos = cos, .sin = sin, .N = 2, .D = 2};
  EXPECT_EQ(Name(RopeTable(p, nullptr)), "bad index: positions");
  EXPECT_EQ(cos[0], 7.0f);
}

// A rotation of N rows of heads, with angles drawn at random.
struct Rotation {
  Matrix x, y, cos, sin;
  std::vector<double> angles;
  int64_t heads, D;

  Rotation(int64_t N, int64_t heads, int64_t D, DType dtype)
      : x(N, heads * D, dtype),
        y(N, heads * D, dtype),
        cos(1, N * D / 2),
        sin(1, N * D / 2),
        heads(heads),
        D(D) {
    x.Fill(1);
    cos.Fill(2, 10.0);
    for (int64_t k = 0; k < N * D / 2; ++k) {
      angles.push_back(cos.At(0, k));
      cos.Set(0, k, std::cos(angles[k]));
      sin.Set(0, k, std::sin(angles[k]));
    }
  }
  RopeParams Params() {
    return {.x = x.data(),
            .y = y.data(),
            .cos = cos.floats(),
            .sin = sin.floats(),
            .N = x.N(),
            .heads = heads,
            .D = D,
            .x_stride = x.stride(),
            .y_stride = y.stride(),
            .dtype = x.dtype()};
  }
  // Turned as complex numbers: the pair (j, j + D/2) is one.
  Reference Expected(double direction) const {
    return Map(x, [&](int64_t i, int64_t c) {
      const int64_t j = c % D % (D / 2), first = c / D * D + j;
      const std::complex<double> pair(x.At(i, first), x.At(i, first + D / 2));
      const std::complex<double> turned =
          pair * std::polar(1.0, direction * angles[i * (D / 2) + j]);
      return c % D < D / 2 ? turned.real() : turned.imag();
    });
  }
};

TEST(RopeTest, ForwardAndBackwardMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t D : {2, 6, 32, 62, 66, 128}) {
      for (int64_t heads : {1, 3}) {
        Rotation rotation(5, heads, D, dtype);
        ASSERT_TRUE(RopeForward(rotation.Params(), nullptr).ok());
        ExpectClose(rotation.y, rotation.Expected(1.0));
        ASSERT_TRUE(RopeBackward(rotation.Params(), nullptr).ok());
        ExpectClose(rotation.y, rotation.Expected(-1.0));
        const Matrix y = rotation.y;
        RopeParams p = rotation.Params();
        p.y = rotation.x.data();
        ASSERT_TRUE(RopeBackward(p, nullptr).ok());
        EXPECT_EQ(rotation.x.bytes(), y.bytes());
      }
    }
  }
}

TEST(RopeTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Rotation rotation(67, 7, 66, dtype);
    ExpectSameBitsEveryWay([&] {
      EXPECT_TRUE(RopeForward(rotation.Params(), nullptr).ok());
      return rotation.y.bytes();
    });
  }
}

TEST(RopeTest, RefusesBadArguments) {
  Rotation rotation(2, 3, 8, DType::kF32);
  const std::vector<uint8_t> before = rotation.y.bytes();
  const auto refused = [&](auto change) {
    RopeParams p = rotation.Params();
    change(p);
    return Name(RopeForward(p, nullptr));
  };
  using P = RopeParams;
  EXPECT_EQ(refused([](P& p) { p.D = 7; }), "bad shape: D");
  EXPECT_EQ(refused([](P& p) { p.heads = 0; }), "bad shape: heads");
  EXPECT_EQ(refused([](P& p) { p.x_stride = 23; }), "bad stride: x_stride");
  EXPECT_EQ(refused([](P& p) { p.sin = nullptr; }), "null pointer: sin");
  EXPECT_EQ(rotation.y.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
