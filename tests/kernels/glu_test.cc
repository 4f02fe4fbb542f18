// Gated linear units against a reference in double and against finite differences.
#include "kernels/glu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/activation_testing.h"

namespace snug::kernels {
namespace {

GluForwardParams Forward(Matrix& g, Matrix& u, Matrix& p, Gate gate = Gate::kSilu) {
  return {.g = g.data(),
          .u = u.data(),
          .p = p.data(),
          .N = g.N(),
          .C = g.C(),
          .g_stride = g.stride(),
          .u_stride = u.stride(),
          .p_stride = p.stride(),
          .dtype = g.dtype(),
          .gate = gate};
}

GluBackwardParams Backward(Matrix& dp, Matrix& g, Matrix& u, Matrix& dg, Matrix& du) {
  return {.dp = dp.data(),
          .g = g.data(),
          .u = u.data(),
          .dg = dg.data(),
          .du = du.data(),
          .N = g.N(),
          .C = g.C(),
          .dp_stride = dp.stride(),
          .g_stride = g.stride(),
          .u_stride = u.stride(),
          .dg_stride = dg.stride(),
          .du_stride = du.stride(),
          .dtype = g.dtype()};
}

// One activation at one size: gates of deviation 8 or 3, so that both tails of the sigmoid are
// met.
void ExpectReference(Gate gate, DType dtype, int64_t N, int64_t C) {
  Matrix g(N, C, dtype), u(N, C, dtype), p(N, C, dtype), dp(N, C, dtype), dg(N, C, dtype),
      du(N, C, dtype);
  g.Fill(1, gate == Gate::kSilu ? 8.0 : 3.0);
  u.Fill(2);
  dp.Fill(3);
  GluBackwardParams backward = Backward(dp, g, u, dg, du);
  backward.gate = gate;
  ASSERT_TRUE(GluForward(Forward(g, u, p, gate), TestStream()).ok());
  ASSERT_TRUE(GluBackward(backward, TestStream()).ok());
  ExpectClose(
      p, Map(p, [&](int64_t i, int64_t c) { return ValueIn64(gate, g.At(i, c)) * u.At(i, c); }));
  ExpectClose(
      du, Map(du, [&](int64_t i, int64_t c) { return dp.At(i, c) * ValueIn64(gate, g.At(i, c)); }));
  ExpectClose(dg, Map(dg, [&](int64_t i, int64_t c) {
                return dp.At(i, c) * u.At(i, c) * SlopeIn64(gate, g.At(i, c));
              }));
}

TEST(GluTest, MatchesReference) {
  for (Gate gate : kActivations) {
    for (DType dtype : kTypes) {
      for (int64_t N : kHeights) {
        for (int64_t C : kWidths) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(gate) << ": " << N << " x " << C);
          ExpectReference(gate, dtype, N, C);
        }
      }
    }
  }
}

TEST(GluTest, BackwardMatchesFiniteDifferences) {
  for (Gate gate : kActivations) {
    Matrix g(2, 31), u(2, 31), dp(2, 31), dg(2, 31), du(2, 31);
    g.Fill(4, 2.0);
    u.Fill(5);
    dp.Fill(6);
    GluBackwardParams backward = Backward(dp, g, u, dg, du);
    backward.gate = gate;
    ASSERT_TRUE(GluBackward(backward, TestStream()).ok());
    const std::vector<double> gates = Dense(g), ups = Dense(u), weights = Dense(dp);
    const auto loss = [&](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0.0;
      for (size_t k = 0; k < a.size(); ++k) sum += weights[k] * ValueIn64(gate, a[k]) * b[k];
      return sum;
    };
    EXPECT_LE(RelativeError(dg, FiniteDifferences(gates, [&](auto& v) { return loss(v, ups); })),
              1e-6);
    EXPECT_LE(RelativeError(du, FiniteDifferences(ups, [&](auto& v) { return loss(gates, v); })),
              1e-6);
  }
}

// Results may lie over any operand: all pairs of places, and only one of the two wanted.
TEST(GluTest, WorksInPlaceOverAnyOperand) {
  for (DType dtype : kTypes) {
    Matrix g(3, 127, dtype), u(3, 127, dtype), dp(3, 127, dtype), p(3, 127, dtype),
        dg(3, 127, dtype), du(3, 127, dtype);
    g.Fill(7);
    u.Fill(8);
    dp.Fill(9);
    ASSERT_TRUE(GluForward(Forward(g, u, p), TestStream()).ok());
    ASSERT_TRUE(GluBackward(Backward(dp, g, u, dg, du), TestStream()).ok());
    for (int over : {0, 1}) {
      Matrix in[] = {g, u};
      ASSERT_TRUE(GluForward(Forward(in[0], in[1], in[over]), TestStream()).ok());
      EXPECT_EQ(in[over].bytes(), p.bytes());
    }
    for (int over_dg : {0, 1, 2}) {
      for (int over_du : {0, 1, 2}) {
        if (over_dg == over_du) continue;
        Matrix in[] = {dp, g, u};
        ASSERT_TRUE(
            GluBackward(Backward(in[0], in[1], in[2], in[over_dg], in[over_du]), TestStream())
                .ok());
        EXPECT_EQ(in[over_dg].bytes(), dg.bytes());
        EXPECT_EQ(in[over_du].bytes(), du.bytes());
      }
    }
    Matrix alone_dg(3, 127, dtype), alone_du(3, 127, dtype);
    GluBackwardParams b = Backward(dp, g, u, alone_dg, alone_du);
    b.du = nullptr;
    ASSERT_TRUE(GluBackward(b, TestStream()).ok());
    EXPECT_EQ(alone_dg.bytes(), dg.bytes());
    b.du = alone_du.data();
    b.dg = nullptr;
    b.u = nullptr;
    ASSERT_TRUE(GluBackward(b, TestStream()).ok());
    EXPECT_EQ(alone_du.bytes(), du.bytes());
  }
}

// Neither tail overflows: activation(-x) is 0, activation(x) is x, and the slopes are 0 and 1, also
// where x cubed is infinite.
TEST(GluTest, SaturatesWithoutOverflow) {
  for (Gate gate : kActivations) {
    for (double far : {200.0, 1e30}) {
      Matrix g(1, 3), one(1, 3), p(1, 3), dg(1, 3), du(1, 3);
      const double gates[] = {-far, far, std::numeric_limits<double>::quiet_NaN()};
      for (int64_t c = 0; c < 3; ++c) {
        g.Set(0, c, gates[c]);
        one.Set(0, c, 1.0);
      }
      GluBackwardParams backward = Backward(one, g, one, dg, du);
      backward.gate = gate;
      ASSERT_TRUE(GluForward(Forward(g, one, p, gate), TestStream()).ok());
      ASSERT_TRUE(GluBackward(backward, TestStream()).ok());
      EXPECT_NEAR(p.At(0, 0), 0.0, 1e-36);
      EXPECT_EQ(p.At(0, 1), g.At(0, 1));
      EXPECT_NEAR(dg.At(0, 0), 0.0, 1e-34);
      EXPECT_EQ(dg.At(0, 1), 1.0);
      EXPECT_TRUE(std::isnan(p.At(0, 2)) && std::isnan(du.At(0, 2)));
      // ReLU's slope there is 0, as that of its mask.
      EXPECT_EQ(std::isnan(dg.At(0, 2)), gate != Gate::kRelu);
    }
  }
}

TEST(GluTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    const Gate gate = dtype == DType::kF32 ? Gate::kGeluTanh : Gate::kSilu;
    Matrix g(67, 1031, dtype), u(67, 1031, dtype);
    g.Fill(10, 3.0);
    u.Fill(11);
    ExpectSameBitsEveryWay([&] {
      Matrix p(67, 1031, dtype), dg(67, 1031, dtype), du(67, 1031, dtype);
      GluBackwardParams backward = Backward(p, g, u, dg, du);
      backward.gate = gate;
      EXPECT_TRUE(GluForward(Forward(g, u, p, gate), TestStream()).ok());
      EXPECT_TRUE(GluBackward(backward, TestStream()).ok());
      Bytes bytes = p.bytes();
      bytes.insert(bytes.end(), dg.bytes().begin(), dg.bytes().end());
      bytes.insert(bytes.end(), du.bytes().begin(), du.bytes().end());
      return bytes;
    });
  }
}

// Forward leaves h(g) and the codes of g; backward needs nothing else of g. Exact in du, in dg the
// slope of the code (LMBP-5 for the gated form).
TEST(GluTest, BackwardFromCodesMatchesReference) {
  for (Gate gate : kActivations) {
    for (DType dtype : kTypes) {
      for (int64_t C : kWidths) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(gate) << ": " << C);
        Matrix g(3, C, dtype), u(3, C, dtype), p(3, C, dtype), a(3, C, dtype), dp(3, C, dtype),
            dg(3, C, dtype), du(3, C, dtype);
        CodeRows codes(3, C, 2);
        g.Fill(12, 4.0);
        u.Fill(13);
        dp.Fill(14);
        GluForwardParams forward = Forward(g, u, p, gate);
        forward.a = a.data();
        forward.a_stride = a.stride();
        forward.codes = codes.data();
        forward.code_stride = codes.stride();
        forward.two_bit = TwoBitOf(gate);
        ASSERT_TRUE(GluForward(forward, TestStream()).ok());
        EXPECT_TRUE(codes.GapsUntouched());
        ExpectClose(a, Map(a, [&](int64_t i, int64_t c) { return ValueIn64(gate, g.At(i, c)); }));
        GluBackwardParams b = Backward(dp, g, u, dg, du);
        b.g = nullptr;
        b.gate = gate;
        b.codes = codes.data();
        b.code_stride = codes.stride();
        b.a = a.data();
        b.a_stride = a.stride();
        b.two_bit = forward.two_bit;
        ASSERT_TRUE(GluBackward(b, TestStream()).ok());
        ExpectClose(du, Map(du, [&](int64_t i, int64_t c) { return dp.At(i, c) * a.At(i, c); }));
        ExpectClose(dg, Map(dg, [&](int64_t i, int64_t c) {
                      const int code = CodeOf(g.At(i, c), forward.two_bit);
                      return dp.At(i, c) * u.At(i, c) * forward.two_bit.slope[code];
                    }));
        b.dg = a.data();  // du over dp, dg over a.
        b.dg_stride = a.stride();
        b.du = dp.data();
        b.du_stride = dp.stride();
        ASSERT_TRUE(GluBackward(b, TestStream()).ok());
        EXPECT_EQ(a.bytes(), dg.bytes());
        EXPECT_EQ(dp.bytes(), du.bytes());
        Matrix gate_in_place = g;
        forward.g = forward.a = gate_in_place.data();
        forward.g_stride = forward.a_stride = gate_in_place.stride();
        ASSERT_TRUE(GluForward(forward, TestStream()).ok());
        ExpectClose(gate_in_place,
                    Map(g, [&](int64_t i, int64_t c) { return ValueIn64(gate, g.At(i, c)); }));
      }
    }
  }
}

TEST(GluTest, RefusesBadArguments) {
  Matrix g(2, 31), u(2, 31), dp(2, 31), dg(2, 31), du(2, 31);
  CodeRows codes(2, 31, 2);
  const Bytes before = dg.bytes();
  const auto refused = [&](auto change) {
    GluBackwardParams p = Backward(dp, g, u, dg, du);
    change(p);
    return Name(GluBackward(p, TestStream()));
  };
  using P = GluBackwardParams;
  EXPECT_EQ(refused([](P& p) { p.u = nullptr; }), "null pointer: u");
  EXPECT_EQ(refused([](P& p) { p.du = p.dg; }), "bad value: du");
  EXPECT_EQ(refused([](P& p) { p.dg_stride = 30; }), "bad stride: dg_stride");
  EXPECT_EQ(refused([](P& p) { p.C = -3; }), "bad shape: C");
  EXPECT_EQ(refused([](P& p) { p.gate = static_cast<Gate>(9); }), "bad value: gate");
  EXPECT_EQ(refused([&](P& p) {
              p.codes = codes.data();
              p.code_stride = codes.stride();
            }),
            "bad value: two_bit");
  EXPECT_EQ(refused([&](P& p) {
              p.codes = codes.data();
              p.code_stride = codes.stride();
              p.two_bit = kReSilu2;
            }),
            "null pointer: a");
  EXPECT_EQ(dg.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
