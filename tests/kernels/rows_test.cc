// Gather, scatter, cast and add.
#include "kernels/rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

const SharedVector<int32_t> kIndex = {0, 2, 3, 6};
const SharedVector<int64_t> kWideIndex = {0, 2, 3, 6};

GatherRowsParams Gather(const Matrix& x, Matrix& y) {
  return {.x = x.data(),
          .index = kIndex.data(),
          .y = y.data(),
          .N = y.N(),
          .C = y.C(),
          .x_rows = x.N(),
          .x_stride = x.stride(),
          .y_stride = y.stride(),
          .dtype = x.dtype()};
}

ScatterRowsParams Scatter(const Matrix& x, Matrix& y) {
  return {.x = x.data(),
          .index = kIndex.data(),
          .y = y.data(),
          .N = x.N(),
          .C = x.C(),
          .y_rows = y.N(),
          .x_stride = x.stride(),
          .y_stride = y.stride(),
          .dtype = x.dtype()};
}

CastRowsParams Cast(const Matrix& x, Matrix& y) {
  return {.x = x.data(),
          .y = y.data(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .y_stride = y.stride(),
          .x_dtype = x.dtype(),
          .y_dtype = y.dtype()};
}

AddRowsParams Add(const Matrix& a, const Matrix& b, Matrix& y) {
  return {.a = a.data(),
          .b = b.data(),
          .y = y.data(),
          .N = y.N(),
          .C = y.C(),
          .a_stride = a.stride(),
          .b_stride = b.stride(),
          .y_stride = y.stride(),
          .a_dtype = a.dtype(),
          .b_dtype = b.dtype(),
          .y_dtype = y.dtype()};
}

TEST(GatherRowsTest, CopiesTheRowsNamed) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Matrix x(7, C, dtype), y(4, C, dtype), wide(4, C, dtype);
      x.Fill(1);
      ASSERT_TRUE(GatherRows(Gather(x, y), TestStream()).ok());
      EXPECT_TRUE(y.GapsUntouched());
      EXPECT_EQ(Dense(y), Map(y, [&](int64_t i, int64_t c) { return x.At(kIndex[i], c); }));
      GatherRowsParams p = Gather(x, wide);
      p.index = kWideIndex.data();
      p.index_type = IndexType::kI64;
      ASSERT_TRUE(GatherRows(p, TestStream()).ok());
      EXPECT_EQ(wide.bytes(), y.bytes());
    }
  }
}

// The index is that of each three rows among themselves.
TEST(GatherRowsTest, RepeatsAnIndexWithAPeriod) {
  const SharedVector<int32_t> order = {2, 0, 1};
  Matrix x(9, 33), y(9, 33);
  x.Fill(7);
  GatherRowsParams p = Gather(x, y);
  p.index = order.data();
  p.period = 3;
  ASSERT_EQ(Name(GatherRows(p, TestStream())), "ok: ");
  EXPECT_EQ(Dense(y),
            Map(y, [&](int64_t i, int64_t c) { return x.At(i / 3 * 3 + order[i % 3], c); }));
  const Bytes before = y.bytes();
  const auto refused = [&](auto change) {
    GatherRowsParams bad = p;
    change(bad);
    return Name(GatherRows(bad, TestStream()));
  };
  using P = GatherRowsParams;
  EXPECT_EQ(refused([](P& p) { p.period = -3; }), "bad shape: period");
  EXPECT_EQ(refused([](P& p) { p.period = 2; }), "bad shape: period");
  EXPECT_EQ(refused([](P& p) { p.x_rows = 8; }), "bad shape: x_rows");
  const SharedVector<int32_t> beyond = {2, 0, 3};
  if (OnCpu()) {
    EXPECT_EQ(refused([&](P& p) { p.index = beyond.data(); }), "bad index: index");
  }
  EXPECT_EQ(y.bytes(), before);
}

// Named rows are written, the others are kept, or cleared when asked.
TEST(ScatterRowsTest, WritesTheRowsNamed) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Matrix x(4, C, dtype), y(8, C, dtype), sum(8, C, dtype);
      x.Fill(2);
      y.Fill(3);
      sum = y;
      Reference kept = Dense(y), zeroed(8 * C), added = kept;
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t c = 0; c < C; ++c) {
          kept[kIndex[i] * C + c] = zeroed[kIndex[i] * C + c] = x.At(i, c);
          added[kIndex[i] * C + c] += x.At(i, c);
        }
      }
      ASSERT_TRUE(ScatterRows(Scatter(x, y), TestStream()).ok());
      EXPECT_EQ(Dense(y), kept);
      ScatterRowsParams p = Scatter(x, y);
      p.zero_others = true;
      ASSERT_TRUE(ScatterRows(p, TestStream()).ok());
      EXPECT_EQ(Dense(y), zeroed);
      EXPECT_TRUE(y.GapsUntouched());
      p = Scatter(x, sum);
      p.accumulate = true;
      ASSERT_TRUE(ScatterRows(p, TestStream()).ok());
      ExpectClose(sum, added);
    }
  }
}

TEST(ScatterRowsTest, ClearsAllWhenNoRowIsNamed) {
  Matrix x(4, 31), y(3, 31);
  y.Fill(4);
  ScatterRowsParams p = Scatter(x, y);
  p.N = 0;
  p.zero_others = true;
  ASSERT_TRUE(ScatterRows(p, TestStream()).ok());
  EXPECT_EQ(Dense(y), Reference(3 * 31, 0.0));
}

// Without rows to write those named stay as they are, to the bit.
TEST(ScatterRowsTest, ClearsTheOthersAlone) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Matrix x(4, C, dtype), y(8, C, dtype);
      y.Fill(3);
      Reference expected(8 * C);
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t c = 0; c < C; ++c) expected[kIndex[i] * C + c] = y.At(kIndex[i], c);
      ScatterRowsParams p = Scatter(x, y);
      p.x = nullptr;
      p.x_stride = 0;
      EXPECT_EQ(Name(ScatterRows(p, TestStream())), "null pointer: x");
      p.zero_others = true;
      ASSERT_TRUE(ScatterRows(p, TestStream()).ok());
      EXPECT_EQ(Dense(y), expected);
      EXPECT_TRUE(y.GapsUntouched());
    }
  }
}

TEST(ScatterRowsTest, RefusesIndicesThatMeetOrLeaveTheTable) {
  Matrix x(4, 31), y(7, 31);
  x.Fill(5);
  const Bytes before = y.bytes();
  ScatterRowsParams p = Scatter(x, y);
  // On CUDA nobody looks at indices before a launch.
  for (const SharedVector<int32_t>& bad :
       {SharedVector<int32_t>{0, 2, 2, 6}, {3, 2, 4, 6}, {-1, 2, 4, 6}, {0, 2, 4, 7}}) {
    p.index = bad.data();
    if (!OnCpu()) continue;
    EXPECT_EQ(Name(ScatterRows(p, TestStream())), "bad index: index");
  }
  p = Scatter(x, y);
  p.accumulate = p.zero_others = true;
  EXPECT_EQ(Name(ScatterRows(p, TestStream())), "bad value: zero_others");
  EXPECT_EQ(y.bytes(), before);
}

TEST(GatherRowsTest, RefusesBadArguments) {
  Matrix x(7, 31), y(4, 31);
  GatherRowsParams p = Gather(x, y);
  p.index = nullptr;
  EXPECT_EQ(Name(GatherRows(p, TestStream())), "null pointer: index");
  p = Gather(x, y);
  p.index_type = static_cast<IndexType>(5);
  EXPECT_EQ(Name(GatherRows(p, TestStream())), "bad dtype: index_type");
  if (!OnCpu()) return;
  p = Gather(x, y);
  p.x_rows = 6;
  EXPECT_EQ(Name(GatherRows(p, TestStream())), "bad index: index");
}

TEST(CastRowsTest, ConvertsBothWaysAndCopies) {
  for (DType from : kTypes) {
    for (DType to : kTypes) {
      for (int64_t C : kWidths) {
        Matrix x(3, C, from), y(3, C, to);
        x.Fill(6);
        ASSERT_TRUE(CastRows(Cast(x, y), TestStream()).ok());
        EXPECT_TRUE(y.GapsUntouched());
        Matrix expected(3, C, to);  // Set() rounds as the scalar conversion does.
        for (int64_t k = 0; k < 3 * C; ++k) expected.Set(k / C, k % C, x.At(k / C, k % C));
        EXPECT_EQ(y.bytes(), expected.bytes());
      }
    }
  }
}

// All halves to fp32, and all boundaries between two of them, with the numbers next to them, to
// halves: as types.h's own conversions. (A GPU has one NaN.)
TEST(CastRowsTest, ConvertsEveryF16) {
  SharedVector<f16> halves, rounded;
  SharedVector<float> wide(0x10000), between;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    halves.push_back({static_cast<uint16_t>(bits)});
    const float below = ToFloat(halves.back());
    const float above = (bits & 0x7fff) >= 0x7bff ? std::copysign(65536.0f, below)
                                                  : ToFloat(f16{static_cast<uint16_t>(bits + 1)});
    const uint32_t middle = BitsOf((below + above) / 2.0f);
    for (uint32_t near : {middle - 1, middle, middle + 1}) between.push_back(FloatOfBits(near));
  }
  rounded.resize(between.size());
  CastRowsParams p = {.x = halves.data(),
                      .y = wide.data(),
                      .N = 1,
                      .C = static_cast<int64_t>(wide.size()),
                      .x_dtype = DType::kF16,
                      .y_dtype = DType::kF32};
  ASSERT_TRUE(CastRows(p, TestStream()).ok());
  p = {.x = between.data(),
       .y = rounded.data(),
       .N = 1,
       .C = static_cast<int64_t>(between.size()),
       .x_dtype = DType::kF32,
       .y_dtype = DType::kF16};
  ASSERT_TRUE(CastRows(p, TestStream()).ok());
  WaitForKernels();
  for (size_t i = 0; i < halves.size(); ++i) {
    const float expected = ToFloat(halves[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    } else {
      ASSERT_EQ(BitsOf(wide[i]), BitsOf(expected)) << i;
    }
  }
  for (size_t i = 0; i < between.size(); ++i) {
    if (std::isnan(between[i])) {
      ASSERT_TRUE(std::isnan(ToFloat(rounded[i]))) << i;
    } else {
      ASSERT_EQ(rounded[i].bits, ToF16(between[i]).bits) << between[i];
    }
  }
}

TEST(CastRowsTest, RefusesToChangeTheTypeInPlace) {
  Matrix x(3, 31);
  CastRowsParams p = Cast(x, x);
  p.y_dtype = DType::kBF16;
  EXPECT_EQ(Name(CastRows(p, TestStream())), "bad dtype: y_dtype");
}

// All combinations of types, with and without a factor.
TEST(AddRowsTest, MatchesReference) {
  for (DType at : kTypes) {
    for (DType bt : kTypes) {
      for (DType yt : kTypes) {
        for (int64_t C : kWidths) {
          Matrix a(3, C, at), b(3, C, bt), y(3, C, yt);
          a.Fill(7);
          b.Fill(8);
          AddRowsParams p = Add(a, b, y);
          ASSERT_TRUE(AddRows(p, TestStream()).ok());
          ExpectClose(y, Map(y, [&](int64_t i, int64_t c) { return a.At(i, c) + b.At(i, c); }));
          p.scale = -0.3f;
          ASSERT_TRUE(AddRows(p, TestStream()).ok());
          ExpectClose(y, Map(y, [&](int64_t i, int64_t c) {
                        return a.At(i, c) + static_cast<double>(-0.3f) * b.At(i, c);
                      }));
        }
      }
    }
  }
}

TEST(AddRowsTest, WorksInPlaceOverEitherOperand) {
  for (DType dtype : kTypes) {
    Matrix a(3, 127, dtype), b(3, 127, dtype), y(3, 127, dtype);
    a.Fill(9);
    b.Fill(10);
    ASSERT_TRUE(AddRows(Add(a, b, y), TestStream()).ok());
    Matrix over_a = a, over_b = b;
    ASSERT_TRUE(AddRows(Add(over_a, b, over_a), TestStream()).ok());
    ASSERT_TRUE(AddRows(Add(a, over_b, over_b), TestStream()).ok());
    EXPECT_EQ(over_a.bytes(), y.bytes());
    EXPECT_EQ(over_b.bytes(), y.bytes());
    AddRowsParams p = Add(a, b, a);
    p.y_dtype = dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
    EXPECT_EQ(Name(AddRows(p, TestStream())), "bad dtype: y_dtype");
  }
}

TEST(RowsTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix a(67, 1031), b(67, 1031, dtype);
    a.Fill(11);
    b.Fill(12);
    ExpectSameBitsEveryWay([&] {
      Matrix sum(67, 1031, dtype), cast(67, 1031, dtype);
      EXPECT_TRUE(AddRows(Add(a, b, sum), TestStream()).ok());
      EXPECT_TRUE(CastRows(Cast(a, cast), TestStream()).ok());
      Bytes bytes = sum.bytes();
      bytes.insert(bytes.end(), cast.bytes().begin(), cast.bytes().end());
      return bytes;
    });
  }
}

}  // namespace
}  // namespace snug::kernels
