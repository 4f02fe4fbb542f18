// Reversible streams: what a sub-layer adds is taken away to the bit, over many layers, where
// floating-point streams drift.
#include "kernels/reversible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/by_type.h"
#include "kernels/dropout.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Words = SharedVector<int32_t>;

// A stream of N rows of C words, an odd stride apart.
struct FixedStream {
  int64_t N, C, stride;
  Words words;
  FixedStream(int64_t rows, int64_t columns)
      : N(rows), C(columns), stride(C % 8 == 0 ? C + 8 : C + 3), words(N * stride, 0x5a5a5a5a) {}
  int32_t& at(int64_t i, int64_t c) { return words[i * stride + c]; }
  void Fill(uint32_t seed, double deviation) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0.0, deviation * std::pow(2.0, kFixedBits));
    for (int64_t i = 0; i < N; ++i) {
      for (int64_t c = 0; c < C; ++c) at(i, c) = static_cast<int32_t>(normal(engine));
    }
  }
};

FixedAddParams Update(FixedStream& v, Matrix& f, bool subtract) {
  return {.v = v.words.data(),
          .f = f.data(),
          .v_out = v.words.data(),
          .N = v.N,
          .C = v.C,
          .v_stride = v.stride,
          .f_stride = f.stride(),
          .v_out_stride = v.stride,
          .dtype = f.dtype(),
          .subtract = subtract};
}

// rint(x * 2^q) with the header's bounds, in double.
int64_t FixedOf(double x, int q) {
  if (std::isnan(x)) return 0;
  const double value = std::nearbyint(std::ldexp(x, q));
  return static_cast<int64_t>(std::clamp(value, -0x1p31, 0x1p31 - 1.0));
}

int32_t Wrapped(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }

// Conversion, addition, subtraction and what the next sub-layer reads, for every dtype, against
// 64-bit integers: ties, bounds and wrap-around among them.
TEST(FixedAddTest, MatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 31, 33, 64, 127, 2048, 4097}) {
      for (bool subtract : {false, true}) {
        SCOPED_TRACE(testing::Message() << C << " columns");
        FixedStream v(3, C), out(3, C);
        v.Fill(1, 300.0);
        Matrix f(3, C, dtype), y(3, C, dtype);
        f.Fill(2, 0.01);
        f.Set(0, 0, 1.5 * std::pow(2.0, -kFixedBits));  // A tie, to even.
        f.Set(1, C - 1, -2.5 * std::pow(2.0, -kFixedBits));
        v.at(2, C - 1) = std::numeric_limits<int32_t>::max();  // Wraps around.
        f.Set(2, C - 1, subtract ? -1.0 : 1.0);
        FixedAddParams p = Update(v, f, subtract);
        p.v_out = out.words.data();
        p.y = y.data();
        p.y_stride = y.stride();
        p.y_dtype = dtype;
        ASSERT_TRUE(FixedAdd(p, TestStream()).ok());
        WaitForKernels();
        Reference read;
        for (int64_t i = 0; i < 3; ++i) {
          for (int64_t c = 0; c < C; ++c) {
            const int64_t added = FixedOf(f.At(i, c), kFixedBits);
            const int32_t sum = Wrapped(v.at(i, c) + (subtract ? -added : added));
            ASSERT_EQ(out.at(i, c), sum) << i << ", " << c;
            const float fp32 = static_cast<float>(sum) * 0x1p-20f;
            read.push_back(ByType(
                dtype, [&](auto t) -> double { return ToFloat(Narrow<decltype(t)>(fp32)); }));
          }
        }
        EXPECT_EQ(Dense(y), read);
        EXPECT_TRUE(y.GapsUntouched());
      }
    }
  }
}

// From 2^21 to 2^23 steps fp32 still has halves, or quarters, of a step: ties of every octave, to
// even, by both signs. From 2^23 on numbers are whole.
TEST(FixedAddTest, RoundsTiesToEvenInEveryOctave) {
  constexpr int64_t kSteps = 8;
  for (int octave = 0; octave < 24; ++octave) {
    SCOPED_TRACE(octave);
    FixedStream v(2, 4 * kSteps);
    Matrix f(2, 4 * kSteps);
    std::vector<int64_t> expected;
    for (int64_t i : {0, 1}) {
      for (int64_t c = 0; c < 4 * kSteps; ++c) {
        // Quarters above 2^octave, or below 2^(octave + 1).
        const double quarters = static_cast<double>(i == 0 ? c : -c - 1) / 4.0;
        const double steps = std::ldexp(1.0, octave + static_cast<int>(i)) + quarters;
        const double x = std::ldexp(c % 2 == 0 ? steps : -steps, -kFixedBits);
        f.Set(i, c, x);  // Rounded to fp32, which in the last octaves has no quarters.
        expected.push_back(FixedOf(f.At(i, c), kFixedBits));
        v.at(i, c) = 0;
      }
    }
    ASSERT_TRUE(FixedAdd(Update(v, f, false), TestStream()).ok());
    WaitForKernels();
    for (int64_t k = 0; k < 8 * kSteps; ++k) {
      ASSERT_EQ(v.at(k / (4 * kSteps), k % (4 * kSteps)), expected[static_cast<size_t>(k)]) << k;
    }
  }
}

// A stream begins with an embedding, and is read without a change.
TEST(FixedAddTest, BeginsAndEndsAStream) {
  Matrix x(2, 33), y(2, 33, DType::kBF16);
  x.Fill(3);
  FixedStream v(2, 33);
  const FixedAddParams begin = {.f = x.data(),
                                .v_out = v.words.data(),
                                .N = 2,
                                .C = 33,
                                .f_stride = x.stride(),
                                .v_out_stride = v.stride};
  ASSERT_TRUE(FixedAdd(begin, TestStream()).ok());
  const FixedAddParams end = {.v = v.words.data(),
                              .y = y.data(),
                              .N = 2,
                              .C = 33,
                              .v_stride = v.stride,
                              .y_stride = y.stride(),
                              .y_dtype = DType::kBF16};
  ASSERT_TRUE(FixedAdd(end, TestStream()).ok());
  WaitForKernels();
  for (int64_t c = 0; c < 33; ++c) EXPECT_EQ(v.at(1, c), FixedOf(x.At(1, c), kFixedBits));
  ExpectClose(y, Map(y, [&](int64_t i, int64_t c) { return x.At(i, c); }), 1.01);
}

// The flag is set by a stream without room and by what is no number, and by nothing else; the
// inverse is exact all the same.
TEST(FixedAddTest, TellsOfOverflowAndStillInverts) {
  for (double bad : {0.0, 1500.0, 1e30, -1e30, kInfinity, -kInfinity, std::nan("")}) {
    SCOPED_TRACE(bad);
    FixedStream v(5, 33);
    v.Fill(4, 10.0);
    v.at(4, 7) = 0;
    const Words before = v.words;
    Matrix f(5, 33);
    f.Fill(5);
    f.Set(4, 7, bad);
    SharedVector<int32_t> overflow(1, 0);
    FixedAddParams p = Update(v, f, false);
    p.overflow = overflow.data();
    ASSERT_TRUE(FixedAdd(p, TestStream()).ok());
    WaitForKernels();
    EXPECT_EQ(overflow[0], bad == 0.0 ? 0 : 1);
    EXPECT_EQ(v.at(4, 7), Wrapped(FixedOf(bad, kFixedBits)));
    ASSERT_TRUE(FixedAdd(Update(v, f, true), TestStream()).ok());
    WaitForKernels();
    EXPECT_EQ(v.words, before);
  }
}

// ---- many layers --------------------------------------------------------------------------------

// A sub-layer that mixes neighbours, deterministic; `nudge` disturbs one element as a sum in
// another order would.
void SubLayer(const Matrix& x, int64_t layer, Matrix& f, double nudge = 0.0) {
  for (int64_t i = 0; i < x.N(); ++i) {
    for (int64_t c = 0; c < x.C(); ++c) {
      const double mixed = x.At(i, c) - 0.7 * x.At(i, (c + 1 + layer) % x.C());
      f.Set(i, c, 0.5 * std::tanh(mixed) + 0.1);
    }
  }
  if (nudge != 0.0) f.Set(0, 0, f.At(0, 0) + nudge);
}

void Read(FixedStream& v, Matrix& y) {
  const FixedAddParams p = {.v = v.words.data(),
                            .y = y.data(),
                            .N = v.N,
                            .C = v.C,
                            .v_stride = v.stride,
                            .y_stride = y.stride(),
                            .y_dtype = y.dtype()};
  ASSERT_TRUE(FixedAdd(p, TestStream()).ok());
}

// Dropout of a sub-layer's output, drawn again in backward.
void Drop(Matrix& f, int64_t layer, uint32_t step) {
  const DropoutParams p = {.x = f.data(),
                           .y = f.data(),
                           .N = f.N(),
                           .C = f.C(),
                           .x_stride = f.stride(),
                           .y_stride = f.stride(),
                           .dtype = f.dtype(),
                           .rate = 0.1,
                           .site = {.seed = 9, .step = step, .op = static_cast<uint32_t>(layer)}};
  ASSERT_TRUE(Dropout(p, TestStream()).ok());
}

int64_t DifferentWords(const FixedStream& a, const Words& before) {
  WaitForKernels();
  int64_t count = 0;
  for (size_t k = 0; k < before.size(); ++k) count += a.words[k] != before[k] ? 1 : 0;
  return count;
}

// A batch through L layers, y1 = x1 + F(x2), y2 = x2 + G(y1), with dropout, and back. What forward
// had at each half of a layer is stored beside it, as a plain step stores activations.
struct Stored {
  FixedStream from, to;
  Bytes x;  // What the sub-layer read, of which its gradients are made.
};

// The words of both streams that differ at any half of a layer on the way back, and the halves
// whose sub-layer read other bytes, so that its gradients would differ.
int64_t Mismatches(int64_t layers, DType dtype, uint32_t seed, double nudge) {
  FixedStream a(3, 33), b(3, 33);
  a.Fill(seed, 1.0);
  b.Fill(seed + 1, 1.0);
  Matrix x(3, 33, dtype), f(3, 33, dtype);
  std::vector<Stored> stored;
  int64_t count = 0;
  const auto half = [&](FixedStream& from, FixedStream& to, int64_t layer, bool back) {
    Read(from, x);
    if (back) {
      count += x.bytes() != stored.back().x ? 1 : 0;
    } else {
      stored.push_back({from, to, x.bytes()});
    }
    SubLayer(x, layer, f, back ? nudge : 0.0);
    Drop(f, layer, seed);
    ASSERT_TRUE(FixedAdd(Update(to, f, back), TestStream()).ok());
    if (!back) return;
    count +=
        DifferentWords(from, stored.back().from.words) + DifferentWords(to, stored.back().to.words);
    stored.pop_back();
  };
  for (int64_t l = 0; l < layers; ++l) {
    half(b, a, 2 * l, false);
    half(a, b, 2 * l + 1, false);
  }
  for (int64_t l = layers; l-- > 0;) {
    half(a, b, 2 * l + 1, true);
    half(b, a, 2 * l, true);
  }
  return count;
}

// REV-4: no word of either stream differs at any layer, over 100 batches, dropout on, for any dtype
// of the sub-layers.
TEST(ReversibleTest, Rev4FixedPointStreamsComeBackToTheBit) {
  for (DType dtype : kTypes) {
    for (uint32_t seed = 0; seed < (OnCpu() ? 100u : 2u); ++seed) {
      EXPECT_EQ(Mismatches(OnCpu() ? 48 : 12, dtype, 10 + 2 * seed, 0.0), 0);
    }
  }
}

// NEG-5: a recompute whose last bit differs, as with a product that adds in another order, does not
// come back.
TEST(ReversibleTest, Neg5ASubLayerThatIsNotDeterministicShows) {
  EXPECT_GT(Mismatches(12, DType::kF32, 5, 1e-6), 0);
}

// REV-3, as a negative control: streams of floats drift, and more with every layer.
TEST(ReversibleTest, Rev3FloatStreamsDrift) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    double drift[2] = {};
    for (int64_t deep : {0, 1}) {
      const int64_t layers = deep == 0 ? 2 : 48;
      Matrix a(3, 33, dtype), b(3, 33, dtype), f(3, 33, dtype);
      a.Fill(20);
      b.Fill(21);
      const std::vector<double> a_before = Dense(a);
      const auto half = [&](Matrix& from, Matrix& to, int64_t layer, double sign) {
        SubLayer(from, layer, f);
        for (int64_t i = 0; i < 3; ++i) {
          for (int64_t c = 0; c < 33; ++c) to.Set(i, c, to.At(i, c) + sign * f.At(i, c));
        }
      };
      for (int64_t l = 0; l < layers; ++l) {
        half(b, a, 2 * l, 1.0);
        half(a, b, 2 * l + 1, 1.0);
      }
      for (int64_t l = layers; l-- > 0;) {
        half(a, b, 2 * l + 1, -1.0);
        half(b, a, 2 * l, -1.0);
      }
      drift[deep] = RelativeError(a, a_before);
    }
    EXPECT_GT(drift[1], UnitOf(dtype));
    EXPECT_GT(drift[1], drift[0]);
  }
}

// ---- the coupling with 2^-K ---------------------------------------------------------------------

FixedShiftAddParams Shift(FixedStream& v, Matrix& f, Bytes& side, int shift, bool inverse) {
  return {.v = v.words.data(),
          .f = f.data(),
          .v_out = v.words.data(),
          .side = side.data() + 1,  // Off every alignment.
          .N = v.N,
          .C = v.C,
          .v_stride = v.stride,
          .f_stride = f.stride(),
          .v_out_stride = v.stride,
          .side_stride = SideBytes(v.C, shift) + 1,
          .dtype = f.dtype(),
          .shift = shift,
          .inverse = inverse};
}

// REV-5: exact for K = 1 .. 8, with K bits per element beside the stream and not one more.
TEST(FixedShiftAddTest, Rev5IsExactWithKBitsPerElement) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 7, 31, 33, 64, 127, 2048, 4097}) {
      for (int shift : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(testing::Message() << C << " columns, K = " << shift);
        FixedStream v(3, C);
        v.Fill(30, 100.0);
        const FixedStream before = v;
        Matrix f(3, C, dtype);
        f.Fill(31);
        const int64_t bytes = SideBytes(C, shift);
        EXPECT_EQ(bytes, (C + 7) / 8 * shift);
        Bytes side(static_cast<size_t>(3 * (bytes + 1) + 1), 0xA5);
        ASSERT_TRUE(FixedShiftAdd(Shift(v, f, side, shift, false), TestStream()).ok());
        WaitForKernels();
        FixedStream copy = before;
        for (int64_t i = 0; i < 3; ++i) {
          EXPECT_EQ(side[static_cast<size_t>(i * (bytes + 1))], 0xA5) << "between rows";
          for (int64_t c = 0; c < C; ++c) {
            const int64_t kept = FixedOf(f.At(i, c), kFixedBits);
            const auto down = static_cast<int64_t>(
                std::floor(static_cast<double>(copy.at(i, c)) / std::pow(2.0, shift)));
            ASSERT_EQ(v.at(i, c), Wrapped(down + kept)) << i << ", " << c;
          }
        }
        ASSERT_TRUE(FixedShiftAdd(Shift(v, f, side, shift, true), TestStream()).ok());
        WaitForKernels();
        EXPECT_EQ(v.words, before.words);
      }
    }
  }
}

// The low bits are what makes it exact: without them the stream comes back rounded.
TEST(FixedShiftAddTest, WithoutTheSideBitsItIsNotExact) {
  FixedStream v(2, 64);
  v.Fill(32, 1.0);
  const Words before = v.words;
  Matrix f(2, 64);
  f.Fill(33);
  Bytes side(100, 0);
  ASSERT_TRUE(FixedShiftAdd(Shift(v, f, side, 2, false), TestStream()).ok());
  WaitForKernels();
  std::fill(side.begin(), side.end(), uint8_t{0});
  ASSERT_TRUE(FixedShiftAdd(Shift(v, f, side, 2, true), TestStream()).ok());
  WaitForKernels();
  EXPECT_NE(v.words, before);
}

TEST(ReversibleTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix f(67, 1031, dtype);
    f.Fill(40, 3.0);
    ExpectSameBitsEveryWay([&] {
      FixedStream v(67, 1031);
      v.Fill(41, 300.0);
      Matrix y(67, 1031, dtype);
      Bytes side(static_cast<size_t>(67 * (SideBytes(1031, 3) + 1) + 1), 0);
      FixedAddParams p = Update(v, f, false);
      p.y = y.data();
      p.y_stride = y.stride();
      p.y_dtype = dtype;
      EXPECT_TRUE(FixedAdd(p, TestStream()).ok());
      EXPECT_TRUE(FixedShiftAdd(Shift(v, f, side, 3, false), TestStream()).ok());
      WaitForKernels();
      Bytes bytes = y.bytes();
      bytes.insert(bytes.end(), side.begin(), side.end());
      const auto* words = reinterpret_cast<const uint8_t*>(v.words.data());
      bytes.insert(bytes.end(), words, words + v.words.size() * 4);
      return bytes;
    });
  }
}

TEST(ReversibleTest, RefusesBadArguments) {
  FixedStream v(3, 33);
  v.Fill(50, 1.0);
  const Words before = v.words;
  Matrix f(3, 33);
  f.Fill(51);
  Bytes side(100, 0);
  const auto refused = [&](auto change) {
    FixedAddParams p = Update(v, f, false);
    change(p);
    return Name(FixedAdd(p, TestStream()));
  };
  using P = FixedAddParams;
  EXPECT_EQ(refused([](P& p) { p.v = nullptr, p.f = nullptr; }), "null pointer: v");
  EXPECT_EQ(refused([](P& p) { p.v_out = nullptr; }), "null pointer: v_out");
  EXPECT_EQ(refused([](P& p) { p.f_stride = 32; }), "bad stride: f_stride");
  EXPECT_EQ(refused([](P& p) { p.q = 31; }), "bad value: q");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(7); }), "bad dtype: dtype");
  const auto refused_shift = [&](auto change) {
    FixedShiftAddParams p = Shift(v, f, side, 2, false);
    change(p);
    return Name(FixedShiftAdd(p, TestStream()));
  };
  using S = FixedShiftAddParams;
  EXPECT_EQ(refused_shift([](S& p) { p.shift = 0; }), "bad value: shift");
  EXPECT_EQ(refused_shift([](S& p) { p.shift = 9; }), "bad value: shift");
  EXPECT_EQ(refused_shift([](S& p) { p.side = nullptr; }), "null pointer: side");
  EXPECT_EQ(refused_shift([](S& p) { p.side_stride = 9; }), "bad stride: side_stride");
  EXPECT_EQ(refused_shift([](S& p) { p.N = -1; }), "bad shape: N");
  WaitForKernels();
  EXPECT_EQ(v.words, before);
}

}  // namespace
}  // namespace snug::kernels
