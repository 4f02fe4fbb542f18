// The bias of linear modules against sums in double.
#include "kernels/bias.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

BiasForwardParams Forward(Matrix& b, Matrix& y) {
  return {.b = b.data(),
          .y = y.data(),
          .N = y.N(),
          .C = y.C(),
          .y_stride = y.stride(),
          .dtype = y.dtype()};
}

void* Workspace() {
  static Bytes workspace(1 << 20);
  return workspace.data();
}

BiasBackwardParams Backward(Matrix& dy, Matrix& db) {
  return {.dy = dy.data(),
          .db = db.floats(),
          .N = dy.N(),
          .C = dy.C(),
          .dy_stride = dy.stride(),
          .dtype = dy.dtype(),
          .workspace = Workspace()};
}

TEST(BiasTest, MatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t C : kWidths) {
        SCOPED_TRACE(testing::Message() << N << " x " << C);
        Matrix b(1, C, dtype), y(N, C, dtype), dy(N, C, dtype), db(1, C);
        b.Fill(1);
        dy.Fill(2);
        ASSERT_TRUE(BiasForward(Forward(b, y), TestStream()).ok());
        ExpectClose(y, Map(y, [&](int64_t, int64_t c) { return b.At(0, c); }), 0.0);
        ASSERT_TRUE(BiasBackward(Backward(dy, db), TestStream()).ok());
        ExpectClose(db, Map(db, [&](int64_t, int64_t c) {
                      double sum = 0.0;
                      for (int64_t i = 0; i < N; ++i) sum += dy.At(i, c);
                      return sum;
                    }));
      }
    }
  }
}

TEST(BiasTest, AddsIntoTheGradientWhereAsked) {
  Matrix dy(3, 33), once(1, 33), twice(1, 33);
  dy.Fill(3);
  ASSERT_TRUE(BiasBackward(Backward(dy, once), TestStream()).ok());
  BiasBackwardParams p = Backward(dy, twice);
  ASSERT_TRUE(BiasBackward(p, TestStream()).ok());
  p.accumulate = true;
  ASSERT_TRUE(BiasBackward(p, TestStream()).ok());
  ExpectClose(twice, Map(twice, [&](int64_t, int64_t c) { return 2.0 * once.At(0, c); }));
}

// Without rows: nothing to lay, and a gradient of zero.
TEST(BiasTest, WorksWithoutRows) {
  Matrix db(1, 5);
  BiasBackwardParams p = {
      .db = db.floats(), .N = 0, .C = 5, .dy_stride = 5, .workspace = Workspace()};
  ASSERT_TRUE(BiasBackward(p, TestStream()).ok());
  ExpectClose(db, Map(db, [](int64_t, int64_t) { return 0.0; }));
  EXPECT_TRUE(BiasForward({.N = 0, .C = 5, .y_stride = 5}, TestStream()).ok());
}

TEST(BiasTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix dy(131, 1031, dtype);
    dy.Fill(4);
    ExpectSameBitsEveryWay([&] {
      Matrix db(1, 1031);
      EXPECT_TRUE(BiasBackward(Backward(dy, db), TestStream()).ok());
      return db.bytes();
    });
  }
}

TEST(BiasTest, RefusesBadArguments) {
  Matrix dy(2, 31), db(1, 31);
  const auto refused = [&](auto change) {
    BiasBackwardParams p = Backward(dy, db);
    change(p);
    return Name(BiasBackward(p, TestStream()));
  };
  using P = BiasBackwardParams;
  EXPECT_EQ(refused([](P& p) { p.db = nullptr; }), "null pointer: db");
  EXPECT_EQ(refused([](P& p) { p.dy_stride = 30; }), "bad stride: dy_stride");
  EXPECT_EQ(refused([](P& p) { p.C = 0; }), "bad shape: C");
}

}  // namespace
}  // namespace snug::kernels
