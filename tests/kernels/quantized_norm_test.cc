// Norms with xhat as codes: against the plain ops, and against references in double of what the
// codes stand for. Tests are named by the oracles of the method (MESA-n) that they are.
#include "kernels/quantized_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/quantized_testing.h"

namespace snug::kernels {
namespace {

constexpr Norm kNorms[] = {Norm::kRms, Norm::kLayer};

// One norm with all its operands.
struct Layer {
  Matrix x, z, r, gamma, beta;
  Coded codes;
  Norm norm;

  Layer(int64_t N, int64_t C, DType dtype, Norm n, CodeBits bits = CodeBits::k8)
      : x(N, C, dtype),
        z(N, C, dtype),
        r(1, N),
        gamma(1, C, dtype),
        beta(1, C),
        codes(N, C, bits),
        norm(n) {
    x.Fill(static_cast<uint32_t>(C), 2.0);
    gamma.Fill(5);
  }
  NormalizeForwardParams Plain() {
    return {.x = x.data(),
            .r = r.floats(),
            .N = x.N(),
            .C = x.C(),
            .x_stride = x.stride(),
            .dtype = x.dtype(),
            .eps = 1e-5f,
            .norm = norm,
            .z = z.data(),
            .gamma = gamma.data(),
            .z_stride = z.stride(),
            .gamma_dtype = gamma.dtype()};
  }
  QuantizedNormForwardParams Forward() {
    return {.norm = Plain(), .xhat = codes.q(), .dither = {.site = kQuantizeSite}};
  }
  NormalizeBackwardParams PlainBackward(Matrix& dz, Matrix& dx) {
    return {.dxhat = dz.data(),
            .r = r.floats(),
            .dx = dx.data(),
            .N = x.N(),
            .C = x.C(),
            .dxhat_stride = dz.stride(),
            .dx_stride = dx.stride(),
            .dtype = dz.dtype(),
            .norm = norm,
            .gamma = gamma.data(),
            .gamma_dtype = gamma.dtype()};
  }
  Reference InputGradient(const Matrix& dz) const;
};

// dx of what the codes stand for, by the formula of normalize.h.
Reference Layer::InputGradient(const Matrix& dz) const {
  const auto C = static_cast<double>(x.C());
  Reference dot(x.N()), sum(x.N());
  const auto dxhat = [&](int64_t i, int64_t c) { return dz.At(i, c) * gamma.At(0, c); };
  for (int64_t i = 0; i < x.N(); ++i) {
    for (int64_t c = 0; c < x.C(); ++c) {
      dot[i] += dxhat(i, c) * codes.value(i, c) / C;
      if (norm == Norm::kLayer) sum[i] += dxhat(i, c) / C;
    }
  }
  return Map(dz, [&](int64_t i, int64_t c) {
    return r.At(0, i) * (dxhat(i, c) - sum[i] - codes.value(i, c) * dot[i]);
  });
}

// Both ways to move elements, a warp and a block a row, rows longer than what is held.
template <typename Body>
void ForShapes(Body body) {
  for (Norm norm : kNorms) {
    for (DType dtype : kTypes) {
      for (int64_t C : {1, 31, 33, 127, 128, 264, 4097}) {
        SCOPED_TRACE(testing::Message() << C << " columns, norm " << static_cast<int>(norm)
                                        << ", type " << static_cast<int>(dtype));
        body(C, dtype, norm);
      }
    }
  }
}

// MESA-1: z is the plain op's, and codes are those of its xhat: bit by bit on the CPU, where the
// sums of rows are the same.
TEST(QuantizedNormTest, Mesa1ForwardIsThePlainOp) {
  ForShapes([](int64_t C, DType dtype, Norm norm) {
    Layer layer(5, C, dtype, norm);
    Matrix xhat(5, C, dtype), z(5, C, dtype), r(1, 5);
    NormalizeForwardParams plain = layer.Plain();
    plain.xhat = xhat.data();
    plain.xhat_stride = xhat.stride();
    plain.z = z.data();
    plain.r = r.floats();
    ASSERT_TRUE(NormalizeForward(plain, TestStream()).ok());
    ASSERT_TRUE(QuantizedNormForward(layer.Forward(), TestStream()).ok());
    EXPECT_TRUE(layer.codes.GapsUntouched());
    ExpectClose(layer.z, Dense(z), 4.0);
    ExpectClose(layer.r, Dense(r));
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t c = 0; c < C; ++c) {
        const double step = layer.codes.range(i, c).step;
        const double slack = 4.0 * UnitOf(dtype) * std::abs(xhat.At(i, c)) + 1e-5;
        ASSERT_LE(std::abs(layer.codes.value(i, c) - xhat.At(i, c)), step + slack);
      }
    }
    if (!OnCpu()) return;
    Coded apart(5, C, CodeBits::k8);
    ASSERT_TRUE(QuantizeInto(xhat, apart).ok());
    EXPECT_EQ(layer.codes.bytes(), apart.bytes());
    EXPECT_EQ(layer.z.bytes(), z.bytes());
    EXPECT_EQ(layer.r.bytes(), r.bytes());
  });
}

TEST(QuantizedNormTest, BackwardMatchesReference) {
  ForShapes([](int64_t C, DType dtype, Norm norm) {
    if (C == 1) return;  // The norm of one element is its sign: what is left is rounding alone.
    for (CodeBits bits : {CodeBits::k8, CodeBits::k4}) {
      Layer layer(5, C, dtype, norm, bits);
      Matrix dz(5, C, dtype), dx(5, C, dtype);
      dz.Fill(9);
      ASSERT_TRUE(QuantizedNormForward(layer.Forward(), TestStream()).ok());
      QuantizedNormBackwardParams p = {.norm = layer.PlainBackward(dz, dx),
                                       .xhat = layer.codes.q()};
      ASSERT_TRUE(QuantizedNormBackward(p, TestStream()).ok());
      ExpectClose(dx, layer.InputGradient(dz), 1.5);
    }
  });
}

// MESA-14, its last part: of codes that are exact it is the plain op's.
TEST(QuantizedNormTest, Mesa14ExactCodesGiveThePlainBackward) {
  for (Norm norm : kNorms) {
    Layer layer(5, 200, DType::kF32, norm);
    Matrix dz(5, 200), dx(5, 200), plain_dx(5, 200), xhat(5, 200);
    dz.Fill(9);
    ASSERT_TRUE(QuantizedNormForward(layer.Forward(), TestStream()).ok());
    ASSERT_TRUE(DequantizeFrom(layer.codes, xhat).ok());
    NormalizeBackwardParams plain = layer.PlainBackward(dz, plain_dx);
    plain.xhat = xhat.data();
    plain.xhat_stride = xhat.stride();
    ASSERT_TRUE(NormalizeBackward(plain, TestStream()).ok());
    QuantizedNormBackwardParams p = {.norm = layer.PlainBackward(dz, dx), .xhat = layer.codes.q()};
    ASSERT_TRUE(QuantizedNormBackward(p, TestStream()).ok());
    ExpectClose(dx, Dense(plain_dx));
  }
}

AffineBackwardParams SumsOf(Matrix& dz, Matrix& dgamma, Matrix& dbeta) {
  static Bytes workspace(1 << 20);
  return {.dz = dz.data(),
          .dgamma = dgamma.floats(),
          .N = dz.N(),
          .C = dz.C(),
          .dz_stride = dz.stride(),
          .dtype = dz.dtype(),
          .workspace = workspace.data(),
          .dbeta = dbeta.floats()};
}

// dbeta is exact; dgamma is that of the codes, within step * sum |dz| of the exact one.
TEST(QuantizedNormTest, Mesa14SumsOfColumns) {
  ForShapes([](int64_t C, DType dtype, Norm norm) {
    Layer layer(37, C, dtype, norm);
    Matrix dz(37, C, dtype), dgamma(1, C), dbeta(1, C), xhat(37, C, dtype);
    dz.Fill(9);
    NormalizeForwardParams plain = layer.Plain();
    plain.xhat = xhat.data();
    plain.xhat_stride = xhat.stride();
    ASSERT_TRUE(NormalizeForward(plain, TestStream()).ok());
    ASSERT_TRUE(QuantizedNormForward(layer.Forward(), TestStream()).ok());
    QuantizedNormSumsParams p = {.affine = SumsOf(dz, dgamma, dbeta), .xhat = layer.codes.q()};
    ASSERT_TRUE(QuantizedNormSums(p, TestStream()).ok());
    Reference gamma(C), beta(C), exact(C), bound(C);
    for (int64_t i = 0; i < 37; ++i) {
      for (int64_t c = 0; c < C; ++c) {
        gamma[c] += dz.At(i, c) * layer.codes.value(i, c);
        beta[c] += dz.At(i, c);
        exact[c] += dz.At(i, c) * xhat.At(i, c);
        bound[c] += layer.codes.range(i, c).step * std::abs(dz.At(i, c));
      }
    }
    ExpectClose(dgamma, gamma);
    ExpectClose(dbeta, beta);
    for (int64_t c = 0; c < C; ++c) {
      ASSERT_LE(std::abs(dgamma.At(0, c) - exact[c]), 1.05 * bound[c] + 1e-4);
    }
    p.affine.accumulate = true;
    p.affine.dbeta = nullptr;
    ASSERT_TRUE(QuantizedNormSums(p, TestStream()).ok());
    ExpectClose(dgamma, Map(dgamma, [&](int64_t, int64_t c) { return 2.0 * gamma[c]; }), 2.0);
  });
}

// An fp32 stream of bf16 layers: h = x + residual is written and normalised; dx is fp32 and added.
TEST(QuantizedNormTest, ResidualsAndWideStreams) {
  for (int64_t C : {33, 264}) {
    Layer layer(3, C, DType::kBF16, Norm::kLayer);
    Matrix residual(3, C), h(3, C), plain_h(3, C), z(3, C, DType::kBF16), xhat = z;
    residual.Fill(21);
    layer.beta.Fill(22);
    QuantizedNormForwardParams p = layer.Forward();
    p.norm.wide = true;
    p.norm.residual = residual.data();
    p.norm.residual_stride = residual.stride();
    p.norm.h = h.data();
    p.norm.h_stride = h.stride();
    NormalizeForwardParams plain = p.norm;
    plain.h = plain_h.data();
    plain.z = z.data();
    plain.xhat = xhat.data();
    plain.xhat_stride = xhat.stride();
    ASSERT_TRUE(NormalizeForward(plain, TestStream()).ok());
    ASSERT_TRUE(QuantizedNormForward(p, TestStream()).ok());
    EXPECT_EQ(h.bytes(), plain_h.bytes());
    ExpectClose(layer.z, Dense(z), 4.0);

    Matrix dz(3, C, DType::kBF16), dx(3, C);
    dz.Fill(23);
    dx.Fill(24);
    const Matrix before = dx;
    QuantizedNormBackwardParams b = {.norm = layer.PlainBackward(dz, dx), .xhat = layer.codes.q()};
    b.norm.wide = b.norm.accumulate = true;
    ASSERT_TRUE(QuantizedNormBackward(b, TestStream()).ok());
    Reference expected = layer.InputGradient(dz);
    for (int64_t k = 0; k < 3 * C; ++k) expected[k] += before.At(k / C, k % C);
    ExpectClose(dx, expected);
  }
}

// Ranges of groups are read: those that another call left.
TEST(QuantizedNormTest, TakesTheRangesOfGroups) {
  Layer layer(4, 96, DType::kF32, Norm::kRms);
  Coded groups(4, 96, CodeBits::k8, RangeKind::kGroups, {.group_columns = 24});
  for (int g = 0; g < 4; ++g) groups.groups()[g] = {0.02f + 0.01f * static_cast<float>(g), -3.0f};
  Coded apart = groups;
  Matrix xhat(4, 96);
  NormalizeForwardParams plain = layer.Plain();
  plain.xhat = xhat.data();
  plain.xhat_stride = xhat.stride();
  ASSERT_TRUE(NormalizeForward(plain, TestStream()).ok());
  ASSERT_TRUE(QuantizeInto(xhat, apart).ok());
  QuantizedNormForwardParams p = layer.Forward();
  p.xhat = groups.q();
  ASSERT_TRUE(QuantizedNormForward(p, TestStream()).ok());
  int64_t others = 0;
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t c = 0; c < 96; ++c) others += groups.code(i, c) != apart.code(i, c);
  }
  EXPECT_LE(others, OnCpu() ? 0 : 2);  // On CUDA r may differ in its last bit.
}

TEST(QuantizedNormTest, SameBitsEveryWay) {
  for (DType dtype : kTypes) {
    ExpectSameBitsEveryWay([&] {
      Layer layer(67, 1031, dtype, Norm::kLayer);
      Matrix dz(67, 1031, dtype), dx(67, 1031, dtype), dgamma(1, 1031), dbeta(1, 1031);
      dz.Fill(3);
      EXPECT_TRUE(QuantizedNormForward(layer.Forward(), TestStream()).ok());
      QuantizedNormBackwardParams b = {.norm = layer.PlainBackward(dz, dx),
                                       .xhat = layer.codes.q()};
      EXPECT_TRUE(QuantizedNormBackward(b, TestStream()).ok());
      QuantizedNormSumsParams s = {.affine = SumsOf(dz, dgamma, dbeta), .xhat = layer.codes.q()};
      EXPECT_TRUE(QuantizedNormSums(s, TestStream()).ok());
      Bytes bytes = layer.codes.bytes();
      for (const Matrix* m : {&layer.z, &dx, &dgamma, &dbeta}) {
        bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
      }
      return bytes;
    });
  }
}

TEST(QuantizedNormTest, RefusesBadArguments) {
  Layer layer(3, 33, DType::kF32, Norm::kRms);
  const Bytes before = layer.z.bytes(), codes_before = layer.codes.bytes();
  const auto refused = [&](auto change) {
    QuantizedNormForwardParams p = layer.Forward();
    change(p);
    return Name(QuantizedNormForward(p, TestStream()));
  };
  using P = QuantizedNormForwardParams;
  EXPECT_EQ(refused([](P& p) { p.norm.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.norm.z = nullptr; }), "null pointer: z");
  EXPECT_EQ(refused([](P& p) { p.norm.gamma = nullptr; }), "null pointer: gamma");
  EXPECT_EQ(refused([](P& p) { p.norm.xhat = p.norm.z; }), "bad value: norm.xhat");
  EXPECT_EQ(refused([](P& p) { p.norm.round_xhat = false; }), "bad value: round_xhat");
  EXPECT_EQ(refused([](P& p) { p.norm.eps = -1.0f; }), "bad value: eps");
  EXPECT_EQ(refused([](P& p) { p.xhat.codes = nullptr; }), "null pointer: codes");
  EXPECT_EQ(refused([](P& p) { p.xhat.codes_stride = 3; }), "bad stride: codes_stride");
  EXPECT_EQ(refused([](P& p) { p.dither.site.op = kMaxRandomOps; }), "bad value: site.op");
  EXPECT_EQ(layer.z.bytes(), before);
  EXPECT_EQ(layer.codes.bytes(), codes_before);

  Matrix dz(3, 33), dx(3, 33);
  const Bytes dx_before = dx.bytes();
  QuantizedNormBackwardParams b = {.norm = layer.PlainBackward(dz, dx), .xhat = layer.codes.q()};
  b.norm.x = layer.x.data();
  EXPECT_EQ(Name(QuantizedNormBackward(b, TestStream())), "bad value: norm.x");
  QuantizedNormSumsParams s = {.affine = SumsOf(dz, dx, dx), .xhat = layer.codes.q()};
  s.affine.dxhat = dx.data();
  EXPECT_EQ(Name(QuantizedNormSums(s, TestStream())), "bad value: affine.dxhat");
  EXPECT_EQ(dx.bytes(), dx_before);
}

}  // namespace
}  // namespace snug::kernels
