// Means of rows against sums in double.
#include "kernels/mean_rows.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

MeanRowsForwardParams Forward(Matrix& x, Matrix& y) {
  return {.x = x.data(),
          .y = y.data(),
          .N = y.N(),
          .G = x.N() / y.N(),
          .C = y.C(),
          .x_stride = x.stride(),
          .y_stride = y.stride(),
          .dtype = y.dtype()};
}

MeanRowsBackwardParams Backward(Matrix& dy, Matrix& dx) {
  return {.dy = dy.data(),
          .dx = dx.data(),
          .N = dy.N(),
          .G = dx.N() / dy.N(),
          .C = dy.C(),
          .dy_stride = dy.stride(),
          .dx_stride = dx.stride(),
          .dtype = dy.dtype()};
}

// Groups of fewer rows than are added at a time, of as many, and of more.
TEST(MeanRowsTest, MatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t G : {1, 5, 32, 49, 130}) {
      for (int64_t C : kWidths) {
        if (!OnCpu() && (G * C > 4000 || G == 5)) continue;  // The emulation is slow.
        SCOPED_TRACE(testing::Message() << G << " x " << C);
        Matrix x(3 * G, C, dtype), y(3, C, dtype), dy(3, C, dtype), dx(3 * G, C, dtype);
        x.Fill(1);
        dy.Fill(2);
        ASSERT_TRUE(MeanRowsForward(Forward(x, y), TestStream()).ok());
        ExpectClose(y, Map(y, [&](int64_t i, int64_t c) {
                      double sum = 0.0;
                      for (int64_t j = 0; j < G; ++j) sum += x.At(i * G + j, c);
                      return sum / static_cast<double>(G);
                    }));
        EXPECT_TRUE(y.GapsUntouched());
        ASSERT_TRUE(MeanRowsBackward(Backward(dy, dx), TestStream()).ok());
        ExpectClose(dx, Map(dx, [&](int64_t i, int64_t c) {
                      return dy.At(i / G, c) / static_cast<double>(G);
                    }));
        EXPECT_TRUE(dx.GapsUntouched());
      }
    }
  }
}

TEST(MeanRowsTest, AddsIntoTheGradientWhereAsked) {
  Matrix dy(2, 33), dx(14, 33);
  dy.Fill(3);
  dx.Fill(4);
  const Reference before = Dense(dx);
  MeanRowsBackwardParams p = Backward(dy, dx);
  p.accumulate = true;
  ASSERT_TRUE(MeanRowsBackward(p, TestStream()).ok());
  ExpectClose(dx, Map(dx, [&](int64_t i, int64_t c) {
                return before[static_cast<size_t>(i * 33 + c)] + dy.At(i / 7, c) / 7.0;
              }));
}

TEST(MeanRowsTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix x(6 * 49, 131, dtype), dy(6, 131, dtype);
    x.Fill(5);
    dy.Fill(6);
    ExpectSameBitsEveryWay([&] {
      Matrix y(6, 131, dtype), dx(6 * 49, 131, dtype);
      EXPECT_TRUE(MeanRowsForward(Forward(x, y), TestStream()).ok());
      EXPECT_TRUE(MeanRowsBackward(Backward(dy, dx), TestStream()).ok());
      Bytes bytes = y.bytes();
      bytes.insert(bytes.end(), dx.bytes().begin(), dx.bytes().end());
      return bytes;
    });
  }
}

TEST(MeanRowsTest, RefusesGroupsWithoutRows) {
  Matrix x(4, 31), y(2, 31);
  const Bytes before = y.bytes();
  MeanRowsForwardParams p = Forward(x, y);
  p.G = 0;
  EXPECT_EQ(Name(MeanRowsForward(p, TestStream())), "bad shape: G");
  MeanRowsBackwardParams b = Backward(y, x);
  b.G = 0;
  EXPECT_EQ(Name(MeanRowsBackward(b, TestStream())), "bad shape: G");
  EXPECT_EQ(y.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
