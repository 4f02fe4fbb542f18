// Norms of rows against a reference in double, and to the bit against the order that the header
// fixes for all devices.
#include "kernels/row_norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

RowNormsParams Params(Matrix& x, Matrix& norms, float scale = 1.0f) {
  return {.x = x.data(),
          .norms = norms.floats(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .dtype = x.dtype(),
          .scale = scale};
}

// The order of the header, element by element.
float InFixedOrder(const Matrix& x, int64_t i) {
  std::vector<float> chains(256, 0.0f);
  for (int64_t c = 0; c < x.C(); ++c) {
    const float v = static_cast<float>(x.At(i, c));
    const float square = v * v;
    chains[c % 256] += square;
  }
  for (size_t width = 128; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) chains[j] += chains[j + width];
  }
  return std::sqrt(chains[0]);
}

// Wide and narrow accesses, shorter and longer than the chains, to the bit: on each device the
// same, so that each selects the same rows.
TEST(RowNormsTest, MatchReferenceAndTheFixedOrder) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 8, 31, 33, 127, 256, 264, 2048, 4097, 4104}) {
      SCOPED_TRACE(C);
      Matrix x(11, C, dtype), norms(1, 11);
      x.Fill(1, 3.0);
      ASSERT_TRUE(RowNorms(Params(x, norms), TestStream()).ok());
      ExpectClose(norms, Map(norms, [&](int64_t, int64_t i) {
                    double sum = 0.0;
                    for (int64_t c = 0; c < C; ++c) sum += x.At(i, c) * x.At(i, c);
                    return std::sqrt(sum);
                  }));
      for (int64_t i = 0; i < 11; ++i) EXPECT_EQ(norms.floats()[i], InFixedOrder(x, i)) << i;
    }
  }
}

TEST(RowNormsTest, ScaleTakesTheLossScaleOut) {
  Matrix x(3, 33, DType::kF16), norms(1, 3), scaled(1, 3);
  x.Fill(2);
  ASSERT_TRUE(RowNorms(Params(x, norms), TestStream()).ok());
  ASSERT_TRUE(RowNorms(Params(x, scaled, 0x1p-10f), TestStream()).ok());
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(scaled.At(0, i), norms.At(0, i) * 0x1p-10);
}

TEST(RowNormsTest, NanStaysInItsRowAndGreatRowsOverflow) {
  Matrix x(4, 33), norms(1, 4);
  x.Fill(3);
  x.Set(1, 32, std::numeric_limits<double>::quiet_NaN());
  x.Set(2, 0, 1e20);
  ASSERT_TRUE(RowNorms(Params(x, norms), TestStream()).ok());
  EXPECT_TRUE(std::isfinite(norms.At(0, 0)) && std::isfinite(norms.At(0, 3)));
  EXPECT_TRUE(std::isnan(norms.At(0, 1)));
  EXPECT_TRUE(std::isinf(norms.At(0, 2)));
}

TEST(RowNormsTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix x(67, 1031, dtype);
    x.Fill(4);
    ExpectSameBitsEveryWay([&] {
      Matrix norms(1, 67);
      EXPECT_TRUE(RowNorms(Params(x, norms), TestStream()).ok());
      return norms.bytes();
    });
  }
}

TEST(RowNormsTest, RefusesBadArguments) {
  Matrix x(3, 33), norms(1, 3);
  x.Fill(5);
  const Bytes before = norms.bytes();
  const auto refused = [&](auto change) {
    RowNormsParams p = Params(x, norms);
    change(p);
    return Name(RowNorms(p, TestStream()));
  };
  using P = RowNormsParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.norms = nullptr; }), "null pointer: norms");
  EXPECT_EQ(refused([](P& p) { p.N = -1; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.C = 0; }), "bad shape: C");
  EXPECT_EQ(refused([](P& p) { p.x_stride = 32; }), "bad stride: x_stride");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(7); }), "bad dtype: dtype");
  EXPECT_EQ(refused([](P& p) { p.scale = 0.0f; }), "bad value: scale");
  EXPECT_EQ(norms.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
