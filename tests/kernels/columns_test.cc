// Columns by id: gathered as rows, and added to in the order of the rows.
#include "kernels/columns.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr int64_t kVocabulary = 11;

SharedVector<int32_t> Ids(int64_t N) { return RepeatingIds(N, kVocabulary); }

ColumnsParams Params(Matrix& x, const SharedVector<int32_t>& ids, Matrix& y) {
  return {.x = x.floats(),
          .ids = ids.data(),
          .y = y.floats(),
          .N = y.N(),
          .R = y.C(),
          .V = x.C(),
          .x_stride = x.stride(),
          .y_stride = y.stride()};
}

TEST(ColumnsTest, GathersColumnsAsRows) {
  for (int64_t N : kHeights) {
    for (int64_t R : {1, 8, 31, 33, 127, 4097}) {
      const SharedVector<int32_t> ids = Ids(N);
      Matrix x(R, kVocabulary), y(N, R);
      x.Fill(1);
      ASSERT_TRUE(GatherColumns(Params(x, ids, y), TestStream()).ok());
      EXPECT_TRUE(y.GapsUntouched());
      EXPECT_EQ(Dense(y), Map(y, [&](int64_t i, int64_t r) { return x.At(r, ids[i]); }));
    }
  }
}

// Ids repeat: the terms of one element are added in their order, bit for bit.
TEST(ColumnsTest, AddsInTheOrderOfTheRows) {
  for (int64_t N : kHeights) {
    for (int64_t R : {1, 8, 31, 33, 127, 4097}) {
      const SharedVector<int32_t> ids = Ids(N);
      Matrix x(R, kVocabulary), y(N, R);
      x.Fill(2);
      y.Fill(3);
      std::vector<float> expected;
      for (int64_t r = 0; r < R; ++r) {
        for (int64_t id = 0; id < kVocabulary; ++id) {
          auto sum = static_cast<float>(x.At(r, id));
          for (int64_t i = 0; i < N; ++i) {
            if (ids[i] == id) sum += static_cast<float>(y.At(i, r));
          }
          expected.push_back(sum);
        }
      }
      ASSERT_TRUE(AddColumns(Params(x, ids, y), TestStream()).ok());
      EXPECT_TRUE(x.GapsUntouched());
      EXPECT_EQ(Dense(x), Map(x, [&](int64_t r, int64_t id) {
                  return expected[static_cast<size_t>(r * kVocabulary + id)];
                }));
    }
  }
}

TEST(ColumnsTest, RefusesWithoutWriting) {
  const SharedVector<int32_t> ids = Ids(3);
  Matrix x(8, kVocabulary), y(3, 8);
  x.Fill(1);
  y.Fill(2);
  const auto before = Dense(x);
  const auto refused = [&](auto change) {
    ColumnsParams p = Params(x, ids, y);
    change(p);
    const Error error = AddColumns(p, TestStream());
    EXPECT_EQ(GatherColumns(p, TestStream()).code, error.code);
    return std::string(error.parameter);
  };
  EXPECT_EQ(refused([](ColumnsParams& p) { p.x = nullptr; }), "x");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.ids = nullptr; }), "ids");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.y = nullptr; }), "y");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.N = -1; }), "N");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.R = 0; }), "R");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.V = 0; }), "V");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.x_stride = p.V - 1; }), "x_stride");
  EXPECT_EQ(refused([](ColumnsParams& p) { p.y_stride = 7; }), "y_stride");
  if (OnCpu()) {
    EXPECT_EQ(refused([](ColumnsParams& p) { p.V = 3; }), "ids");
  }
  EXPECT_EQ(Dense(x), before);
}

}  // namespace
}  // namespace snug::kernels
