// AdamW against torch.optim.AdamW's own numbers, a reference in double, and itself.
#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

struct State {
  Matrix p, g, m, v;
  explicit State(int64_t n) : p(1, n), g(1, n), m(1, n), v(1, n) {
    p.Fill(1);
    g.Fill(2, 0.1);
    m.Fill(3, 0.05);
    v.Fill(4, 0.1);
    for (int64_t i = 0; i < n; ++i) v.Set(0, i, v.At(0, i) * v.At(0, i));
  }
  AdamWTensor Tensor() {
    return {.p = p.floats(), .g = g.floats(), .m = m.floats(), .v = v.floats(), .n = p.C()};
  }
};

constexpr AdamWParams kSettings = {.count = 1,
                                   .step = 7,
                                   .lr = 1e-3,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .grad_scale = 0.5f};

AdamWParams With(const AdamWTensor* tensors, int64_t count) {
  AdamWParams p = kSettings;
  p.tensors = tensors;
  p.count = count;
  return p;
}

TEST(AdamWTest, MatchesReference) {
  for (int64_t n : {1, 31, 33, 64, 127, 4097, 50001}) {
    for (bool decay : {true, false}) {
      State state(n);
      const State old = state;
      AdamWTensor tensor = state.Tensor();
      tensor.decay = decay;
      ASSERT_TRUE(AdamW(With(&tensor, 1), TestStream()).ok());
      const auto m = [&](int64_t c) { return 0.9 * old.m.At(0, c) + 0.1 * 0.5 * old.g.At(0, c); };
      const auto v = [&](int64_t c) {
        return 0.95 * old.v.At(0, c) + 0.05 * std::pow(0.5 * old.g.At(0, c), 2);
      };
      ExpectClose(state.m, Map(state.m, [&](int64_t, int64_t c) { return m(c); }), 3.0);
      ExpectClose(state.v, Map(state.v, [&](int64_t, int64_t c) { return v(c); }), 3.0);
      ExpectClose(state.p, Map(state.p, [&](int64_t, int64_t c) {
                    const double step = 1e-3 * (m(c) / (1.0 - std::pow(0.9, 7))) /
                                        (std::sqrt(v(c) / (1.0 - std::pow(0.95, 7))) + 1e-8);
                    return old.p.At(0, c) * (decay ? 1.0 - 1e-4 : 1.0) - step;
                  }));
    }
  }
}

// Three steps of torch 2.11's AdamW(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01) from
// p = {1, -2, 0.5, 3}, with gradients {0.1, -0.3, 1e-4, -20} * step.
TEST(AdamWTest, EqualsTorchOverThreeSteps) {
  SharedVector<float> p = {1.0f, -2.0f, 0.5f, 3.0f}, g(4), m(4, 0.0f), v(4, 0.0f);
  const float base[] = {0.1f, -0.3f, 1e-4f, -20.0f};
  for (int step = 1; step <= 3; ++step) {
    for (int i = 0; i < 4; ++i) g[i] = base[i] * static_cast<float>(step);
    const AdamWTensor tensor = {.p = p.data(), .g = g.data(), .m = m.data(), .v = v.data(), .n = 4};
    ASSERT_TRUE(
        AdamW({.tensors = &tensor, .count = 1, .step = step, .lr = 0.01, .weight_decay = 0.01},
              TestStream())
            .ok());
    WaitForKernels();
  }
  const float expected[] = {0.970471084f, -1.97017121f, 0.470623165f, 3.0283289f};
  for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(p[i], expected[i]);  // within 4 units
}

// Tensors of all sizes in one call, empty ones among them and more than one launch of CUDA takes:
// as if each had its own call.
TEST(AdamWTest, ManyTensorsAtOnceEqualOneByOne) {
  std::vector<int64_t> sizes = {5, 0, OnCpu() ? 40000 : 9000, 1, 8192, 8193};
  for (int64_t n = 1; n <= 80; ++n) sizes.push_back(n);
  std::vector<State> together, apart;
  for (int64_t n : sizes) {
    together.emplace_back(n);
    apart.emplace_back(n);
  }
  std::vector<AdamWTensor> tensors;
  for (State& state : together) tensors.push_back(state.Tensor());
  const auto count = static_cast<int64_t>(sizes.size());
  ASSERT_TRUE(AdamW(With(tensors.data(), count), TestStream()).ok());
  for (int64_t k = 0; k < count; ++k) {
    const AdamWTensor tensor = apart[k].Tensor();
    ASSERT_TRUE(AdamW(With(&tensor, 1), TestStream()).ok());
    EXPECT_EQ(together[k].p.bytes(), apart[k].p.bytes());
    EXPECT_EQ(together[k].m.bytes(), apart[k].m.bytes());
    EXPECT_EQ(together[k].v.bytes(), apart[k].v.bytes());
    EXPECT_TRUE(together[k].p.GapsUntouched());
  }
}

// Of the value of this very step, whatever lay there before.
TEST(AdamWTest, TheCopyIsTheNewValueRounded) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t n : {1, 31, 16384, 50001}) {
      State state(n);
      Matrix copy(1, n, dtype), expected(1, n, dtype);
      AdamWTensor tensor = state.Tensor();
      tensor.copy = copy.data();
      tensor.copy_dtype = dtype;
      ASSERT_TRUE(AdamW(With(&tensor, 1), TestStream()).ok());
      for (int64_t i = 0; i < n; ++i) expected.Set(0, i, state.p.At(0, i));  // Rounds.
      EXPECT_EQ(copy.bytes(), expected.bytes());
    }
  }
}

// What lies behind the pointer is one more factor of the gradient.
TEST(AdamWTest, TheGradientFactorMultipliesTheScale) {
  State scaled(4097), plain(4097);
  const SharedVector<float> factor = {0.25f};
  const AdamWTensor first = scaled.Tensor(), second = plain.Tensor();
  AdamWParams p = With(&first, 1);
  p.grad_factor = factor.data();
  ASSERT_TRUE(AdamW(p, TestStream()).ok());
  p = With(&second, 1);
  p.grad_scale = 0.125f;
  ASSERT_TRUE(AdamW(p, TestStream()).ok());
  EXPECT_EQ(scaled.p.bytes(), plain.p.bytes());
  EXPECT_EQ(scaled.v.bytes(), plain.v.bytes());
}

TEST(AdamWTest, SameBitsForAllThreadCountsAndInstructionSets) {
  ExpectSameBitsEveryWay([] {
    State state(70001);
    const AdamWTensor tensor = state.Tensor();
    EXPECT_TRUE(AdamW(With(&tensor, 1), TestStream()).ok());
    return state.p.bytes();
  });
}

TEST(AdamWTest, RefusesBadArguments) {
  State state(31);
  AdamWTensor tensor = state.Tensor();
  const Bytes before = state.p.bytes();
  const auto refused = [&](auto change) {
    AdamWParams p = With(&tensor, 1);
    change(p);
    return Name(AdamW(p, TestStream()));
  };
  using P = AdamWParams;
  EXPECT_EQ(refused([](P& p) { p.step = 0; }), "bad value: step");
  EXPECT_EQ(refused([](P& p) { p.lr = std::nan(""); }), "bad value: lr");
  EXPECT_EQ(refused([](P& p) { p.beta1 = 1.0; }), "bad value: beta1");
  EXPECT_EQ(refused([](P& p) { p.beta2 = -0.1; }), "bad value: beta2");
  EXPECT_EQ(refused([](P& p) { p.weight_decay = -1.0; }), "bad value: weight_decay");
  EXPECT_EQ(refused([](P& p) { p.tensors = nullptr; }), "null pointer: tensors");
  tensor.m = nullptr;
  EXPECT_EQ(refused([](P&) {}), "null pointer: m");
  tensor = state.Tensor();
  tensor.copy = state.g.data();
  tensor.copy_dtype = DType::kF32;
  EXPECT_EQ(refused([](P&) {}), "bad dtype: copy_dtype");
  EXPECT_EQ(state.p.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
