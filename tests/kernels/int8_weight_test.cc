// 8-bit weights: bytes worked out by hand, and a reference in double.
#include "kernels/int8_weight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/kernels/frozen_testing.h"

namespace snug::kernels {
namespace {

// absmax 127: a code a unit, ties to even. absmax 2: 1 is 63.5 codes, a tie.
TEST(Int8WeightTest, BytesByHand) {
  Matrix w(3, 5), back(3, 5);
  const double values[3][5] = {
      {127.0, 0.5, 1.5, -2.5, -3.5}, {2.0, -2.0, 1.0, -0.5, 0.0}, {0.0, 0.0, 0.0, 0.0, 0.0}};
  const int expected[3][5] = {{127, 0, 2, -2, -4}, {127, -127, 64, -32, 0}, {0, 0, 0, 0, 0}};
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t k = 0; k < 5; ++k) w.Set(n, k, values[n][k]);
  }
  Int8Memory memory(3, 5);
  ASSERT_TRUE(memory.Quantize(w).ok());
  ASSERT_TRUE(memory.Dequantize(back).ok());
  for (int64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(memory.absmax[n], static_cast<float>(values[n][0]));
    for (int64_t k = 0; k < 5; ++k) {
      EXPECT_EQ(memory.weight().codes[n * memory.stride + k], expected[n][k]);
      EXPECT_NEAR(back.At(n, k), expected[n][k] * values[n][0] / 127.0, 1e-5);
    }
  }
}

TEST(Int8WeightTest, MatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t K : {1, 31, 33, 64, 127, 4097}) {
        Matrix w(N, K, dtype), back(N, K, dtype);
        w.Fill(static_cast<uint32_t>(K), 0.03);
        Int8Memory memory(N, K);
        ASSERT_TRUE(memory.Quantize(w).ok());
        ASSERT_TRUE(memory.Dequantize(back).ok());
        Reference expected;
        for (int64_t n = 0; n < N; ++n) {
          double absmax = 0.0;
          for (int64_t k = 0; k < K; ++k) absmax = std::max(absmax, std::abs(w.At(n, k)));
          ASSERT_EQ(memory.absmax[n], static_cast<float>(absmax));
          for (int64_t k = 0; k < K; ++k) {
            const int code = memory.weight().codes[n * memory.stride + k];
            ASSERT_LE(std::abs(w.At(n, k) * 127.0 / absmax - code), 0.5 + 1e-4);
            expected.push_back(code * absmax / 127.0);
          }
        }
        ExpectClose(back, expected);
        EXPECT_EQ(memory.codes.back(), 0x5A);
      }
    }
  }
}

TEST(Int8WeightTest, SameBytesOnTheCpuAndOnCudaAndEveryWay) {
  Matrix w(37, 1031, DType::kF16);
  w.Fill(9);
  Int8Memory here(37, 1031), there(37, 1031);
  ASSERT_TRUE(here.Quantize(w, nullptr).ok());
  ASSERT_TRUE(there.Quantize(w).ok());
  WaitForKernels();
  EXPECT_EQ(here.codes, there.codes);
  EXPECT_EQ(here.absmax, there.absmax);
  ExpectSameBitsEveryWay([&] {
    Matrix back(37, 1031);
    EXPECT_TRUE(there.Dequantize(back).ok());
    return back.bytes();
  });
}

// A weight that is no number leaves its row none; which codes it has is the same on all sets.
TEST(Int8WeightTest, NotANumberHasTheSameCodesOnEachSet) {
  Matrix w(2, 37);
  w.Fill(3);
  w.Set(0, 5, std::nan(""));
  w.Set(1, 36, HUGE_VAL);
  std::optional<Int8Memory> first;
  OnEachInstructionSet([&] {
    Int8Memory memory(2, 37);
    ASSERT_TRUE(memory.Quantize(w).ok());
    if (!first) first = memory;
    EXPECT_EQ(memory.codes, first->codes);
  });
}

TEST(Int8WeightTest, RefusesBadArguments) {
  Matrix w(3, 33);
  w.Fill(1);
  Int8Memory memory(3, 33);
  const auto before = memory.codes;
  const auto refused = [&](auto change) {
    QuantizeInt8WeightParams p = {
        .w = w.data(), .to = memory.weight(), .N = 3, .K = 33, .w_stride = w.stride()};
    change(p);
    return Name(QuantizeInt8Weight(p, TestStream()));
  };
  using P = QuantizeInt8WeightParams;
  EXPECT_EQ(refused([](P& p) { p.w = nullptr; }), "null pointer: w");
  EXPECT_EQ(refused([](P& p) { p.to.codes = nullptr; }), "null pointer: codes");
  EXPECT_EQ(refused([](P& p) { p.to.absmax = nullptr; }), "null pointer: absmax");
  EXPECT_EQ(refused([](P& p) { p.to.codes_stride = 32; }), "bad stride: codes_stride");
  EXPECT_EQ(refused([](P& p) { p.K = 0; }), "bad shape: K");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(5); }), "bad dtype: dtype");
  EXPECT_EQ(memory.codes, before);
}

}  // namespace
}  // namespace snug::kernels
