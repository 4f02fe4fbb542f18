// RMS norm as one op, rounded once: against references in double.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/column_sums.h"
#include "kernels/cuda/entries.h"
#include "kernels/rms_norm.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr float kEps = 1e-5f;

// One call of each direction: operands as badly laid out as Matrix has them.
struct Norm {
  Norm(int64_t N, int64_t C, DType dtype, DType gamma_dtype = DType::kF32)
      : x(N, C, dtype),
        z(N, C, dtype),
        dz(N, C, dtype),
        dx(N, C, dtype),
        gamma(1, C, gamma_dtype),
        dgamma(1, C),
        r(1, N) {
    x.Fill(1, 3.0);
    gamma.Fill(2, 0.3);
    dz.Fill(3);
  }

  RmsNormForwardParams Forward() {
    return {.x = x.data(),
            .gamma = gamma.data(),
            .z = z.data(),
            .r = r.floats(),
            .N = x.N(),
            .C = x.C(),
            .x_stride = x.stride(),
            .z_stride = z.stride(),
            .dtype = x.dtype(),
            .gamma_dtype = gamma.dtype(),
            .eps = kEps,
            .offset = 1.0f};
  }

  RmsNormBackwardParams Backward() {
    return {.dz = dz.data(),
            .x = x.data(),
            .r = r.floats(),
            .gamma = gamma.data(),
            .dx = dx.data(),
            .dgamma = dgamma.floats(),
            .N = x.N(),
            .C = x.C(),
            .dz_stride = dz.stride(),
            .x_stride = x.stride(),
            .dx_stride = dx.stride(),
            .dtype = x.dtype(),
            .gamma_dtype = gamma.dtype(),
            .offset = 1.0f,
            .workspace = workspace.data()};
  }

  void Run() {
    ASSERT_TRUE(RmsNormForward(Forward(), TestStream()).ok());
    ASSERT_TRUE(RmsNormBackward(Backward(), TestStream()).ok());
  }

  Matrix x, z, dz, dx, gamma, dgamma, r;
  Bytes workspace = Bytes(1 << 20);
};

Reference InverseRms(const Matrix& x) {
  Reference r;
  for (int64_t i = 0; i < x.N(); ++i) {
    double squares = 0.0;
    for (int64_t c = 0; c < x.C(); ++c) squares += x.At(i, c) * x.At(i, c);
    r.push_back(1.0 / std::sqrt(squares / static_cast<double>(x.C()) + static_cast<double>(kEps)));
  }
  return r;
}

// dx of `n` by the header's formula, nothing rounded.
Reference InputGradient(const Norm& n) {
  const Reference r = InverseRms(n.x);
  const auto dxhat = [&](int64_t i, int64_t c) { return n.dz.At(i, c) * (1.0 + n.gamma.At(0, c)); };
  Reference mean(n.x.N());
  for (int64_t i = 0; i < n.x.N(); ++i) {
    for (int64_t c = 0; c < n.x.C(); ++c)
      mean[i] += dxhat(i, c) * n.x.At(i, c) * r[i] / static_cast<double>(n.x.C());
  }
  return Map(n.x, [&](int64_t i, int64_t c) {
    return r[i] * (dxhat(i, c) - n.x.At(i, c) * r[i] * mean[i]);
  });
}

Reference GammaGradient(const Norm& n) {
  const Reference r = InverseRms(n.x);
  return Map(n.dgamma, [&](int64_t, int64_t c) {
    double sum = 0.0;
    for (int64_t i = 0; i < n.x.N(); ++i) sum += n.dz.At(i, c) * n.x.At(i, c) * r[i];
    return sum;
  });
}

// The body once per dtype, dtype of gamma, height and width.
template <typename Body>
void ForShapes(const Body& body) {
  for (DType gamma_dtype : kTypes) {
    SCOPED_TRACE(testing::Message() << "gamma of " << SizeOf(gamma_dtype) << " bytes");
    ForMatrices([&](int64_t N, int64_t C, DType dtype) { body(N, C, dtype, gamma_dtype); });
  }
}

// Half a unit in the last place of bf16: two roundings would not keep within it.
TEST(FusedRmsNormTest, ForwardMatchesReferenceRoundedOnce) {
  ForShapes([](int64_t N, int64_t C, DType dtype, DType gamma_dtype) {
    Norm n(N, C, dtype, gamma_dtype);
    ASSERT_TRUE(RmsNormForward(n.Forward(), TestStream()).ok());
    const Reference r = InverseRms(n.x);
    ExpectClose(n.r, r);
    const auto exact = [&](int64_t i, int64_t c) {
      return n.x.At(i, c) * r[i] * (1.0 + n.gamma.At(0, c));
    };
    ExpectClose(n.z, Map(n.z, exact));
    for (int64_t i = 0; i < N && dtype == DType::kBF16; ++i) {
      for (int64_t c = 0; c < C; ++c) {
        const double half = std::ldexp(1.0, std::ilogb(exact(i, c)) - 8);
        ASSERT_LE(std::abs(n.z.At(i, c) - exact(i, c)), half * 1.001) << i << ", " << c;
      }
    }
  });
}

TEST(FusedRmsNormTest, BackwardMatchesReference) {
  ForShapes([](int64_t N, int64_t C, DType dtype, DType gamma_dtype) {
    Norm n(N, C, dtype, gamma_dtype);
    n.Run();
    // With one column dx is what is left of two equal terms; its scale is theirs.
    if (C > 1) ExpectClose(n.dx, InputGradient(n));
    ExpectClose(n.dgamma, GammaGradient(n));
    EXPECT_TRUE(n.dx.GapsUntouched() && n.dgamma.GapsUntouched() && n.z.GapsUntouched());
  });
}

// On CUDA many aligned rows have both gradients from one kernel: of teams of threads that are less
// than a warp, some warps, a block; of one pack a thread and of two; with a last part that is
// short.
TEST(FusedRmsNormTest, BackwardOfManyRowsMatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t C : {8, 40, 520, 2056}) {
      // The emulation is slow: the widest, two packs a thread, and the next once.
      if (C == 2056 && dtype != DType::kF32) continue;
      if (C == 520 && dtype != DType::kBF16) continue;
      SCOPED_TRACE(testing::Message() << C << " columns of type " << static_cast<int>(dtype));
      Norm n(1999, C, dtype, dtype);
      n.workspace = Bytes(static_cast<size_t>(ColumnSumsWorkspace(1999, C)));
      ASSERT_EQ(!OnCpu(),
                cuda::FitsRmsNormBackward != nullptr && cuda::FitsRmsNormBackward(n.Backward()));
      n.Run();
      WaitForKernels();
      ExpectClose(n.dx, InputGradient(n));
      ExpectClose(n.dgamma, GammaGradient(n));
      EXPECT_TRUE(n.dx.GapsUntouched() && n.dgamma.GapsUntouched());
    }
  }
}

// The same with dx in the place of dz, and with both added to what is there.
TEST(FusedRmsNormTest, BackwardOfManyRowsWorksInPlaceAndAccumulates) {
  Norm n(2000, 64, DType::kBF16), over(2000, 64, DType::kBF16), sum(2000, 64, DType::kBF16);
  n.Run();
  RmsNormBackwardParams backward = over.Backward();
  backward.dx = over.dz.data();
  backward.dx_stride = over.dz.stride();
  ASSERT_TRUE(RmsNormForward(over.Forward(), TestStream()).ok());
  ASSERT_TRUE(RmsNormBackward(backward, TestStream()).ok());
  WaitForKernels();
  EXPECT_EQ(over.dz.bytes(), n.dx.bytes());
  EXPECT_EQ(over.dgamma.bytes(), n.dgamma.bytes());

  sum.dx.Fill(7);
  sum.dgamma.Fill(8);
  const Matrix dx = sum.dx, dgamma = sum.dgamma;
  backward = sum.Backward();
  backward.accumulate_dx = backward.accumulate_dgamma = true;
  ASSERT_TRUE(RmsNormForward(sum.Forward(), TestStream()).ok());
  ASSERT_TRUE(RmsNormBackward(backward, TestStream()).ok());
  WaitForKernels();
  const Reference d_input = InputGradient(n), d_gamma = GammaGradient(n);
  ExpectClose(sum.dx, Map(dx, [&](int64_t i, int64_t c) {
                return dx.At(i, c) + d_input[static_cast<size_t>(i * 64 + c)];
              }));
  ExpectClose(sum.dgamma, Map(dgamma, [&](int64_t i, int64_t c) {
                return dgamma.At(i, c) + d_gamma[static_cast<size_t>(i * 64 + c)];
              }));
}

// The gradient of sum(dz * z), without the formula of the header.
TEST(FusedRmsNormTest, BackwardMatchesFiniteDifferences) {
  Norm n(2, 33, DType::kF32);
  n.Run();
  const auto loss = [&](const std::vector<double>& x, const std::vector<double>& gamma) {
    double sum = 0.0;
    for (size_t i = 0; i < 2; ++i) {
      double squares = 0.0;
      for (size_t c = 0; c < 33; ++c) squares += x[i * 33 + c] * x[i * 33 + c];
      const double rms = std::sqrt(squares / 33.0 + static_cast<double>(kEps));
      for (size_t c = 0; c < 33; ++c)
        sum += n.dz.At(static_cast<int64_t>(i), static_cast<int64_t>(c)) * x[i * 33 + c] / rms *
               (1.0 + gamma[c]);
    }
    return sum;
  };
  const std::vector<double> x = Dense(n.x), gamma = Dense(n.gamma);
  EXPECT_LE(RelativeError(n.dx, FiniteDifferences(x, [&](auto& at) { return loss(at, gamma); })),
            1e-6);
  EXPECT_LE(
      RelativeError(n.dgamma, FiniteDifferences(gamma, [&](auto& at) { return loss(x, at); })),
      1e-6);
}

// Written over its operand, or added into what is there; one gradient without the other.
TEST(FusedRmsNormTest, WorksInPlaceAccumulatesAndLeavesOut) {
  for (DType dtype : kTypes) {
    Norm n(5, 127, dtype), over(5, 127, dtype), sum(5, 127, dtype);
    n.Run();
    RmsNormForwardParams forward = over.Forward();
    forward.z = over.x.data();
    forward.z_stride = over.x.stride();
    ASSERT_TRUE(RmsNormForward(forward, TestStream()).ok());
    EXPECT_EQ(over.x.bytes(), n.z.bytes());

    sum.dx.Fill(7);
    sum.dgamma.Fill(8);
    const Matrix dx = sum.dx, dgamma = sum.dgamma;
    ASSERT_TRUE(RmsNormForward(sum.Forward(), TestStream()).ok());
    RmsNormBackwardParams backward = sum.Backward();
    backward.accumulate_dx = backward.accumulate_dgamma = true;
    ASSERT_TRUE(RmsNormBackward(backward, TestStream()).ok());
    const Reference d_input = InputGradient(n), d_gamma = GammaGradient(n);
    const auto at = [](int64_t i, int64_t c) { return static_cast<size_t>(i * 127 + c); };
    ExpectClose(sum.dx,
                Map(dx, [&](int64_t i, int64_t c) { return dx.At(i, c) + d_input[at(i, c)]; }));
    ExpectClose(sum.dgamma, Map(dgamma, [&](int64_t i, int64_t c) {
                  return dgamma.At(i, c) + d_gamma[at(i, c)];
                }));

    backward = sum.Backward();
    backward.dgamma = nullptr;
    backward.dx = sum.dz.data();
    backward.dx_stride = sum.dz.stride();
    ASSERT_TRUE(RmsNormBackward(backward, TestStream()).ok());
    EXPECT_EQ(sum.dz.bytes(), n.dx.bytes());
    backward = n.Backward();
    n.dx.Fill(9);
    const Matrix untouched = n.dx;
    backward.dx = nullptr;
    backward.gamma = nullptr;
    ASSERT_TRUE(RmsNormBackward(backward, TestStream()).ok());
    EXPECT_EQ(n.dx.bytes(), untouched.bytes());
  }
}

TEST(FusedRmsNormTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    ExpectSameBitsEveryWay([&] {
      Norm n(67, 1031, dtype);
      n.Run();
      Bytes bytes = n.z.bytes();
      for (const Matrix* m : {&n.r, &n.dx, &n.dgamma})
        bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
      return bytes;
    });
  }
}

// Each bad argument is named, and nothing is written.
TEST(FusedRmsNormTest, RefusesBadArguments) {
  Norm n(3, 33, DType::kF32);
  const Bytes before = n.z.bytes();
  const auto forward = [&](auto change) {
    RmsNormForwardParams p = n.Forward();
    change(p);
    return Name(RmsNormForward(p, TestStream()));
  };
  EXPECT_EQ(forward([](auto& p) { p.gamma = nullptr; }), "null pointer: gamma");
  EXPECT_EQ(forward([](auto& p) { p.r = nullptr; }), "null pointer: r");
  EXPECT_EQ(forward([](auto& p) { p.z_stride = 32; }), "bad stride: z_stride");
  EXPECT_EQ(forward([](auto& p) { p.eps = -1.0f; }), "bad value: eps");
  EXPECT_EQ(forward([](auto& p) { p.gamma_dtype = static_cast<DType>(7); }),
            "bad dtype: gamma_dtype");
  EXPECT_EQ(n.z.bytes(), before);
  const auto backward = [&](auto change) {
    RmsNormBackwardParams p = n.Backward();
    change(p);
    return Name(RmsNormBackward(p, TestStream()));
  };
  EXPECT_EQ(backward([](auto& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(backward([](auto& p) { p.gamma = nullptr; }), "null pointer: gamma");
  EXPECT_EQ(backward([](auto& p) { p.dz_stride = 32; }), "bad stride: dz_stride");
  EXPECT_EQ(backward([](auto& p) { p.N = -1; }), "bad shape: N");
}

}  // namespace
}  // namespace snug::kernels
