// Rotary embedding: the table, the rotation.
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <utility>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// Unscaled.
SharedVector<float> Frequencies(int64_t D, double theta) {
  SharedVector<float> inv_freq;
  for (int64_t j = 0; j < D / 2; ++j) {
    inv_freq.push_back(static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(j) / D)));
  }
  return inv_freq;
}

// Positions of either type, in any order, as packed documents have them.
TEST(RopeTableTest, MatchesReference) {
  const SharedVector<int32_t> narrow = {0, 1, 2, 0, 1, 16383, 131071};
  const SharedVector<int64_t> wide(narrow.begin(), narrow.end());
  for (int64_t D : {2, 6, 62, 64, 66, 254, 4098}) {
    SharedVector<float> inv_freq = Frequencies(D, 500000.0);
    Matrix cos(1, 7 * D / 2), sin(1, 7 * D / 2), cos64(1, 7 * D / 2), sin64(1, 7 * D / 2);
    RopeTableParams p = {.positions = narrow.data(),
                         .inv_freq = inv_freq.data(),
                         .cos = cos.floats(),
                         .sin = sin.floats(),
                         .N = 7,
                         .D = D};
    ASSERT_TRUE(RopeTable(p, TestStream()).ok());
    const auto angle = [&](int64_t k) {
      return static_cast<double>(static_cast<float>(narrow[k / (D / 2)]) * inv_freq[k % (D / 2)]);
    };
    ExpectClose(cos, Map(cos, [&](int64_t, int64_t k) { return std::cos(angle(k)); }), 2.0);
    ExpectClose(sin, Map(sin, [&](int64_t, int64_t k) { return std::sin(angle(k)); }), 2.0);
    p.positions = wide.data();
    p.position_type = IndexType::kI64;
    p.cos = cos64.floats();
    p.sin = sin64.floats();
    ASSERT_TRUE(RopeTable(p, TestStream()).ok());
    EXPECT_EQ(cos.bytes(), cos64.bytes());
    EXPECT_EQ(sin.bytes(), sin64.bytes());
  }
}

// yarn's attention factor, of both.
TEST(RopeTableTest, ScalesCosinesAndSines) {
  const SharedVector<int32_t> positions = {3};
  const SharedVector<float> inv_freq = {0.5f};
  Matrix cos(1, 1), sin(1, 1);
  ASSERT_TRUE(RopeTable({.positions = positions.data(),
                         .inv_freq = inv_freq.data(),
                         .cos = cos.floats(),
                         .sin = sin.floats(),
                         .N = 1,
                         .D = 2,
                         .scale = 1.25f},
                        TestStream())
                  .ok());
  ExpectClose(cos, {1.25 * std::cos(1.5)});
  ExpectClose(sin, {1.25 * std::sin(1.5)});
}

// On CUDA nobody looks at positions before a launch.
TEST(RopeTableTest, RefusesANegativePosition) {
  if (!OnCpu()) GTEST_SKIP();
  const int32_t positions[] = {0, -1};
  float inv_freq[1], cos[2] = {7.0f, 7.0f}, sin[2];
  RopeTableParams p = {
      .positions = positions, .inv_freq = inv_freq, .cos = cos, .sin = sin, .N = 2, .D = 2};
  EXPECT_EQ(Name(RopeTable(p, TestStream())), "bad index: positions");
  EXPECT_EQ(cos[0], 7.0f);
}

// Angles of 10^-3 to 10^8 units, near multiples of a quarter turn too: as exact as at small ones.
TEST(RopeTableTest, LargeAnglesAreExact) {
  SharedVector<int32_t> positions;
  SharedVector<float> inv_freq = {1.0f, 0.5f, 1e-3f, 355.0f / 226.0f};
  for (int32_t position : {1, 2, 11, 355, 710, 103993, 16777216, 100000007, 2147483647}) {
    positions.push_back(position);
  }
  const auto N = static_cast<int64_t>(positions.size());
  Matrix cos(1, N * 4), sin(1, N * 4);
  ASSERT_TRUE(RopeTable({.positions = positions.data(),
                         .inv_freq = inv_freq.data(),
                         .cos = cos.floats(),
                         .sin = sin.floats(),
                         .N = N,
                         .D = 8},
                        TestStream())
                  .ok());
  const auto angle = [&](int64_t k) {
    return static_cast<double>(static_cast<float>(positions[k / 4]) * inv_freq[k % 4]);
  };
  for (int64_t k = 0; k < N * 4; ++k) {
    const double c = std::cos(angle(k)), s = std::sin(angle(k));
    EXPECT_NEAR(cos.At(0, k) / c, 1.0, 1.3e-7) << angle(k);
    EXPECT_NEAR(sin.At(0, k) / s, 1.0, 1.3e-7) << angle(k);
  }
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
    for (int64_t D : {2, 6, 32, 62, 66, 128, 254, 4098}) {
      for (int64_t heads : {1, 3}) {
        Rotation rotation(5, heads, D, dtype);
        ASSERT_TRUE(RopeForward(rotation.Params(), TestStream()).ok());
        ExpectClose(rotation.y, rotation.Expected(1.0));
        ASSERT_TRUE(RopeBackward(rotation.Params(), TestStream()).ok());
        ExpectClose(rotation.y, rotation.Expected(-1.0));
        const Matrix y = rotation.y;
        RopeParams p = rotation.Params();
        p.y = rotation.x.data();
        ASSERT_TRUE(RopeBackward(p, TestStream()).ok());
        EXPECT_EQ(rotation.x.bytes(), y.bytes());
      }
    }
  }
}

// Of heads of D elements the first R: turned like heads of R, the others as they were.
TEST(RopeTest, TurnsTheFirstElementsOfAHead) {
  for (const auto& [R, D] : {std::pair<int64_t, int64_t>{6, 10}, {16, 32}, {16, 24}}) {
    for (DType dtype : kTypes) {
      Rotation narrow(3, 2, R, dtype);
      Matrix x(3, 2 * D, dtype), y(3, 2 * D, dtype);
      x.Fill(7);
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t c = 0; c < 2 * R; ++c) x.Set(i, c / R * D + c % R, narrow.x.At(i, c));
      }
      RopeParams wide = narrow.Params();
      wide.x = x.data();
      wide.y = y.data();
      wide.D = D;
      wide.R = R;
      wide.x_stride = x.stride();
      wide.y_stride = y.stride();
      ASSERT_TRUE(RopeForward(narrow.Params(), TestStream()).ok());
      ASSERT_TRUE(RopeForward(wide, TestStream()).ok());
      EXPECT_EQ(Dense(y), Map(y, [&](int64_t i, int64_t c) {
                  return c % D < R ? narrow.y.At(i, c / D * R + c % D) : x.At(i, c);
                }));
      wide.y = x.data();
      wide.y_stride = x.stride();
      ASSERT_TRUE(RopeForward(wide, TestStream()).ok());
      EXPECT_EQ(Dense(x), Dense(y));
      EXPECT_TRUE(x.GapsUntouched());
      wide.R = D + 2;
      EXPECT_EQ(Name(RopeForward(wide, TestStream())), "bad shape: R");
    }
  }
}

TEST(RopeTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Rotation rotation(67, 7, 66, dtype);
    ExpectSameBitsEveryWay([&] {
      EXPECT_TRUE(RopeForward(rotation.Params(), TestStream()).ok());
      return rotation.y.bytes();
    });
  }
}

TEST(RopeTest, RefusesBadArguments) {
  Rotation rotation(2, 3, 8, DType::kF32);
  const Bytes before = rotation.y.bytes();
  const auto refused = [&](auto change) {
    RopeParams p = rotation.Params();
    change(p);
    return Name(RopeForward(p, TestStream()));
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
