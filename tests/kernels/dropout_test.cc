// Philox against its authors' vectors; dropout against the scalar Philox.
#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/kernels/activation_testing.h"

namespace snug::kernels {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesTheKnownAnswers) {
  const auto words = [](Random4 counter, uint64_t key) {
    const Random4 r = Philox(counter, key);
    return std::vector<uint32_t>(r.word, r.word + 4);
  };
  EXPECT_EQ(words({{0, 0, 0, 0}}, 0),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The header's counter, put together here: all 40 bits of the block's number count, and none of
// them is the op's.
TEST(PhiloxTest, EveryBitOfABlocksNumberCounts) {
  constexpr RandomSite site = {.seed = 11, .step = 12, .micro_batch = 13, .op = 0xabcdef};
  std::set<uint32_t> words = {RandomBlock(site, 0).word[0]};
  for (int bit = 0; bit < 40; ++bit) {
    const uint64_t block = uint64_t{1} << bit;
    const uint32_t low = bit < 32 ? 1u << bit : 0, high = bit < 32 ? 0 : 1u << (bit - 32);
    const Random4 expected = Philox({{low, 0xabcdef00u | high, 12, 13}}, 11);
    const Random4 random = RandomBlock(site, block);
    for (int w = 0; w < 4; ++w) EXPECT_EQ(random.word[w], expected.word[w]) << "bit " << bit;
    words.insert(random.word[0]);
  }
  EXPECT_EQ(words.size(), 41u);
}

TEST(PhiloxTest, UniformLiesBelowOne) {
  EXPECT_EQ(ToUniform(0), 0.0f);
  EXPECT_EQ(ToUniform(0xffffffff), 1.0f - 0x1p-24f);
}

constexpr RandomSite kSite = {.seed = 0x0123456789abcdef, .step = 17, .micro_batch = 3, .op = 4711};

DropoutParams ParamsOf(const Matrix& x, Matrix& y, double rate) {
  return {.x = x.data(),
          .y = y.data(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .y_stride = y.stride(),
          .dtype = x.dtype(),
          .rate = rate,
          .site = kSite};
}

// The header's assignment of words to elements, one element at a time.
bool Kept(int64_t row, int64_t c, int64_t C, double rate) {
  const uint64_t block = row * ((C + 63) / 64) * 16 + c / 64 * 16 + c % 16;
  const uint32_t word = RandomBlock(kSite, block).word[c % 64 / 16];
  return word / 2 >= static_cast<uint32_t>(rate * 0x1p31);
}

TEST(DropoutTest, MatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t C : kWidths) {
        SCOPED_TRACE(testing::Message() << N << " x " << C);
        Matrix x(N, C, dtype), y(N, C, dtype);
        x.Fill(1);
        ASSERT_TRUE(Dropout(ParamsOf(x, y, 0.3), TestStream()).ok());
        ExpectClose(y, Map(y, [&](int64_t i, int64_t c) {
                      return Kept(i, c, C, 0.3) ? x.At(i, c) / 0.7 : 0.0;
                    }));
      }
    }
  }
}

// Rows of a sample are dropped from as in their places among all.
TEST(DropoutTest, RowsByIndexHaveTheMasksOfTheirPlaces) {
  const SharedVector<int32_t> index = {0, 3, 4, 4, 90, 17};
  for (int64_t C : {1, 33, 64, 130}) {
    Matrix x(6, C, DType::kF32), y(6, C, DType::kF32);
    x.Fill(2);
    DropoutParams p = ParamsOf(x, y, 0.3);
    p.first_row = 5;
    p.row_index = index.data();
    ASSERT_TRUE(Dropout(p, TestStream()).ok());
    ExpectClose(y, Map(y, [&](int64_t i, int64_t c) {
                  return Kept(5 + index[i], c, C, 0.3) ? x.At(i, c) / 0.7 : 0.0;
                }));
  }
}

// All of a group's rows or none of them, wherever the call's rows begin.
TEST(DropoutTest, RowsOfADrawAreKeptOrDroppedTogether) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Matrix x(23, C, dtype), y(23, C, dtype);
      x.Fill(3);
      DropoutParams p = ParamsOf(x, y, 0.4);
      p.first_row = 2;
      p.rows_per_draw = 5;
      SharedVector<uint8_t> mask(static_cast<size_t>(23 * ((C + 7) / 8)), 0xaa);
      p.mask = mask.data();
      p.mask_stride = (C + 7) / 8;
      ASSERT_EQ(Name(Dropout(p, TestStream())), "ok: ");
      ExpectClose(y, Map(y, [&](int64_t i, int64_t c) {
                    return Kept((i + 2) / 5, 0, C, 0.4) ? x.At(i, c) / 0.6 : 0.0;
                  }));
      for (int64_t i = 0; i < 23; ++i)
        EXPECT_EQ(mask[static_cast<size_t>(i * p.mask_stride)] & 1, Kept((i + 2) / 5, 0, C, 0.4));
    }
  }
}

// The mask says which elements were kept, and backward from it gives what drawing again gives.
TEST(DropoutTest, MaskHoldsTheBitsDrawn) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 31, 64, 127, 136, 250, 4097}) {
      SCOPED_TRACE(testing::Message() << C);
      Matrix x(3, C, dtype), y(3, C, dtype), again(3, C, dtype);
      CodeRows mask(3, C, 1);
      x.Fill(8);
      DropoutParams p = ParamsOf(x, y, 0.4);
      p.mask = mask.data();
      p.mask_stride = mask.stride();
      ASSERT_TRUE(Dropout(p, TestStream()).ok());
      EXPECT_TRUE(mask.GapsUntouched() && y.GapsUntouched());
      for (int64_t k = 0; k < 3 * C; ++k) {
        ASSERT_EQ(mask.At(k / C, k % C), Kept(k / C, k % C, C, 0.4) ? 1 : 0) << k;
      }
      ASSERT_TRUE(CodeBackward({.dy = x.data(),
                                .codes = mask.data(),
                                .dx = again.data(),
                                .N = 3,
                                .C = C,
                                .dy_stride = x.stride(),
                                .code_stride = mask.stride(),
                                .dx_stride = again.stride(),
                                .dtype = dtype,
                                .bits = 1,
                                .slope = {0.0f, static_cast<float>(1.0 / 0.6)}},
                               TestStream())
                      .ok());
      EXPECT_EQ(again.bytes(), y.bytes());
    }
  }
}

// Over its operand, and added into what is there.
TEST(DropoutTest, WorksInPlaceAndAccumulates) {
  for (DType dtype : kTypes) {
    Matrix x(3, 127, dtype), y(3, 127, dtype), sum(3, 127, dtype);
    x.Fill(2);
    sum.Fill(3);
    const Matrix before = sum;
    ASSERT_TRUE(Dropout(ParamsOf(x, y, 0.5), TestStream()).ok());
    DropoutParams p = ParamsOf(x, sum, 0.5);
    p.accumulate = true;
    ASSERT_TRUE(Dropout(p, TestStream()).ok());
    ExpectClose(sum, Map(sum, [&](int64_t i, int64_t c) {
                  return before.At(i, c) + (Kept(i, c, 127, 0.5) ? 2.0 * x.At(i, c) : 0.0);
                }));
    ASSERT_TRUE(Dropout(ParamsOf(x, x, 0.5), TestStream()).ok());
    EXPECT_EQ(x.bytes(), y.bytes());
  }
}

// A million elements (60,000 emulated): the share that is kept is within five deviations of 1 -
// rate.
TEST(DropoutTest, DropsTheShareAskedFor) {
  const int64_t N = OnCpu() ? 1000 : 60;
  const double elements = static_cast<double>(N) * 1000.0;
  Matrix x(N, 1000), y(N, 1000);
  x.Fill(4);
  for (double rate : {0.0, 0.05, 0.5, 0.9}) {
    ASSERT_TRUE(Dropout(ParamsOf(x, y, rate), TestStream()).ok());
    int64_t kept = 0;
    for (double value : Dense(y)) kept += value != 0.0;
    EXPECT_NEAR(static_cast<double>(kept) / elements, 1.0 - rate,
                5.0 * std::sqrt(rate * (1.0 - rate) / elements) + 1e-9);
  }
}

// Another step, micro-batch, op or seed draws another mask.
TEST(DropoutTest, EverySiteHasItsOwnMask) {
  Matrix x(1, 4097), y(1, 4097), other(1, 4097);
  x.Fill(5);
  DropoutParams p = ParamsOf(x, y, 0.5);
  ASSERT_TRUE(Dropout(p, TestStream()).ok());
  const auto shared = [&](auto change) {
    DropoutParams q = ParamsOf(x, other, 0.5);
    change(q.site);
    EXPECT_TRUE(Dropout(q, TestStream()).ok());
    int64_t same = 0;
    for (int64_t c = 0; c < 4097; ++c) same += (y.At(0, c) == 0.0) == (other.At(0, c) == 0.0);
    return static_cast<double>(same) / 4097.0;
  };
  EXPECT_EQ(shared([](RandomSite&) {}), 1.0);
  EXPECT_NEAR(shared([](RandomSite& s) { ++s.step; }), 0.5, 0.05);
  EXPECT_NEAR(shared([](RandomSite& s) { ++s.micro_batch; }), 0.5, 0.05);
  EXPECT_NEAR(shared([](RandomSite& s) { ++s.op; }), 0.5, 0.05);
  EXPECT_NEAR(shared([](RandomSite& s) { ++s.seed; }), 0.5, 0.05);
}

TEST(DropoutTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix x(67, 1031, dtype);
    x.Fill(6);
    ExpectSameBitsEveryWay([&] {
      Matrix y(67, 1031, dtype);
      EXPECT_TRUE(Dropout(ParamsOf(x, y, 0.1), TestStream()).ok());
      return y.bytes();
    });
  }
}

// A chunk of rows draws what these rows have in the whole.
TEST(DropoutTest, SameBitsHoweverRowsAreDivided) {
  Matrix x(6, 130), all(6, 130), apart(6, 130);
  x.Fill(7);
  ASSERT_TRUE(Dropout(ParamsOf(x, all, 0.5), TestStream()).ok());
  for (int64_t first : {0, 2, 4}) {
    DropoutParams p = ParamsOf(x, apart, 0.5);
    p.x = x.row(first);
    p.y = apart.row(first);
    p.N = 2;
    p.first_row = first;
    ASSERT_TRUE(Dropout(p, TestStream()).ok());
  }
  EXPECT_EQ(all.bytes(), apart.bytes());
}

// Of a micro-batch whose rows have more than 2^32 blocks, up to the last of 2^40: rows that are
// 2^32 blocks apart do not share a mask.
TEST(DropoutTest, RowsBeyond32BitsOfBlocksHaveTheirOwnMasks) {
  constexpr int64_t C = 64, kBlocksPerRow = 16, kFar = (int64_t{1} << 32) / kBlocksPerRow;
  std::set<std::vector<double>> masks;
  for (int64_t first_row : {int64_t{5}, 5 + kFar, 5 + 2 * kFar, 5 + 128 * kFar, 256 * kFar - 3}) {
    SCOPED_TRACE(first_row);
    Matrix x(3, C), y(3, C);
    x.Fill(9);
    DropoutParams p = ParamsOf(x, y, 0.5);
    p.first_row = first_row;
    ASSERT_TRUE(Dropout(p, TestStream()).ok());
    const Reference expected = Map(y, [&](int64_t i, int64_t c) {
      return Kept(first_row + i, c, C, 0.5) ? 2.0 * x.At(i, c) : 0.0;
    });
    EXPECT_EQ(Dense(y), expected);
    masks.insert(expected);
  }
  EXPECT_EQ(masks.size(), 5u);
}

// A dropped NaN is still a NaN.
TEST(DropoutTest, DoesNotHideNan) {
  Matrix x(1, 64), y(1, 64);
  for (int64_t c = 0; c < 64; ++c) x.Set(0, c, std::numeric_limits<double>::quiet_NaN());
  ASSERT_TRUE(Dropout(ParamsOf(x, y, 0.9), TestStream()).ok());
  for (int64_t c = 0; c < 64; ++c) EXPECT_TRUE(std::isnan(y.At(0, c)));
}

TEST(DropoutTest, RefusesBadArguments) {
  Matrix x(2, 31), y(2, 31);
  const Bytes before = y.bytes();
  const auto refused = [&](auto change) {
    DropoutParams p = ParamsOf(x, y, 0.5);
    change(p);
    return Name(Dropout(p, TestStream()));
  };
  using P = DropoutParams;
  EXPECT_EQ(refused([](P& p) { p.rate = 1.0; }), "bad value: rate");
  EXPECT_EQ(refused([](P& p) { p.rate = std::nan(""); }), "bad value: rate");
  EXPECT_EQ(refused([](P& p) { p.site.op = kMaxRandomOps; }), "bad value: site.op");
  EXPECT_EQ(refused([](P& p) { p.first_row = int64_t{1} << 40; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.x_stride = 1; }), "bad stride: x_stride");
  EXPECT_EQ(refused([](P& p) { p.rows_per_draw = -1; }), "bad value: rows_per_draw");
  const SharedVector<int32_t> index = {0, 1};
  EXPECT_EQ(refused([&](P& p) {
              p.rows_per_draw = 2;
              p.row_index = index.data();
            }),
            "bad value: rows_per_draw");
  uint8_t byte = 0;
  EXPECT_EQ(refused([&](P& p) { p.mask = &byte; }), "bad stride: mask_stride");
  EXPECT_EQ(y.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
