// Uniform noise: its distribution, and that it is a function of where it is drawn.
#include "kernels/uniform_noise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

UniformNoiseParams ParamsOf(Matrix& x, uint64_t seed) {
  return {.x = x.data(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .dtype = x.dtype(),
          .magnitude = 0.5f,
          .site = {.seed = seed, .step = 3, .micro_batch = 1, .op = 0}};
}

Matrix Noise(int64_t N, int64_t C, uint64_t seed) {
  Matrix x(N, C);
  for (int64_t i = 0; i < N; ++i)
    for (int64_t c = 0; c < C; ++c) x.Set(i, c, 0.0);
  EXPECT_TRUE(AddUniformNoise(ParamsOf(x, seed), TestStream()).ok());
  EXPECT_TRUE(x.GapsUntouched());
  return x;
}

// Over seeds: mean 0, variance m^2 / 3, all within the bounds. 200 seeds of 33 x 31 draws; limits
// of five deviations.
TEST(UniformNoiseTest, MeanAndVarianceOverSeeds) {
  constexpr double kMagnitude = 0.5;
  double sum = 0.0, squares = 0.0;
  int64_t draws = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Matrix x = Noise(33, 31, seed);
    for (int64_t i = 0; i < 33; ++i) {
      for (int64_t c = 0; c < 31; ++c) {
        ASSERT_LE(std::abs(x.At(i, c)), kMagnitude);
        sum += x.At(i, c);
        squares += x.At(i, c) * x.At(i, c);
        ++draws;
      }
    }
  }
  const auto n = static_cast<double>(draws);
  const double variance = kMagnitude * kMagnitude / 3.0;
  EXPECT_NEAR(sum / n, 0.0, 5.0 * std::sqrt(variance / n));
  // The fourth moment of it is m^4 / 5.
  const double deviation = std::sqrt((std::pow(kMagnitude, 4) / 5.0 - variance * variance) / n);
  EXPECT_NEAR(squares / n, variance, 5.0 * deviation);
}

// Another seed, step, micro-batch or op is another noise; the same is the same.
TEST(UniformNoiseTest, ItIsAFunctionOfItsSite) {
  const Matrix x = Noise(3, 33, 7);
  EXPECT_EQ(Noise(3, 33, 7).bytes(), x.bytes());
  EXPECT_NE(Noise(3, 33, 8).bytes(), x.bytes());
  for (int which = 0; which < 3; ++which) {
    Matrix other(3, 33);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t c = 0; c < 33; ++c) other.Set(i, c, 0.0);
    UniformNoiseParams params = ParamsOf(other, 7);
    (which == 0 ? params.site.step : which == 1 ? params.site.micro_batch : params.site.op) += 1;
    ASSERT_TRUE(AddUniformNoise(params, TestStream()).ok());
    EXPECT_NE(other.bytes(), x.bytes()) << which;
  }
}

// Row by row, or in one call: the same noise.
TEST(UniformNoiseTest, ACallOfSomeRowsGivesTheirs) {
  const Matrix whole = Noise(5, 33, 7);
  Matrix parts(5, 33);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t c = 0; c < 33; ++c) parts.Set(i, c, 0.0);
    UniformNoiseParams params = ParamsOf(parts, 7);
    params.x = parts.row(i);
    params.N = 1;
    params.first_row = i;
    ASSERT_TRUE(AddUniformNoise(params, TestStream()).ok());
  }
  EXPECT_EQ(parts.bytes(), whole.bytes());
}

// The same bits on every device: word c % 4 of the header's block, whatever the width.
TEST(UniformNoiseTest, EveryElementHasItsOwnDraw) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 31, 33, 64, 127, 2048, 4097}) {
      Matrix x(3, C, dtype);
      x.Fill(2);
      const Matrix before = x;
      UniformNoiseParams params = ParamsOf(x, 7);
      params.first_row = 5;
      ASSERT_TRUE(AddUniformNoise(params, TestStream()).ok());
      Matrix expected = before;  // Set() rounds to the dtype.
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t c = 0; c < C; ++c) {
          const auto block = static_cast<uint64_t>((5 + i) * ((C + 3) / 4) + c / 4);
          const float u = ToUniform(RandomBlock(params.site, block).word[c % 4]);
          expected.Set(i, c, static_cast<float>(before.At(i, c)) + 0.5f * (2.0f * u - 1.0f));
        }
      }
      EXPECT_EQ(x.bytes(), expected.bytes()) << C;
    }
  }
}

TEST(UniformNoiseTest, Bf16IsRoundedOnce) {
  const Matrix noise = Noise(3, 33, 7);
  Matrix x(3, 33, DType::kBF16);
  x.Fill(1);
  const Matrix before = x;
  ASSERT_TRUE(AddUniformNoise(ParamsOf(x, 7), TestStream()).ok());
  ExpectClose(x, Map(x, [&](int64_t i, int64_t c) { return before.At(i, c) + noise.At(i, c); }));
}

TEST(UniformNoiseTest, RefusesWhatItCannotDo) {
  Matrix x(3, 33);
  UniformNoiseParams params = ParamsOf(x, 7);
  params.magnitude = -1.0f;
  EXPECT_STREQ(AddUniformNoise(params, TestStream()).parameter, "magnitude");
  params = ParamsOf(x, 7);
  params.x = nullptr;
  EXPECT_STREQ(AddUniformNoise(params, TestStream()).parameter, "x");
  params = ParamsOf(x, 7);
  params.first_row = -1;
  EXPECT_STREQ(AddUniformNoise(params, TestStream()).parameter, "first_row");
}

}  // namespace
}  // namespace snug::kernels
