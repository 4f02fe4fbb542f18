// Ops whose tensors are flat (no rows, or rows that do not stride over memory) on the CPU, past
// 2^31 elements: what divides them hands out every element once, and the inner loops, called for a
// few elements at the far end, give what they give for a tensor of these elements alone. Most of
// the memory is never touched. What CUDA divides is in far_grids_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/adamw_scalars.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/tensor_list.h"
#include "kernels/grad_norm.h"
#include "kernels/nf4_levels.h"
#include "tests/kernels/device.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

SNUG_VERSIONS(AdamWElements, void(const AdamWTensor&, const AdamWScalars&, Range));
SNUG_VERSIONS(AdamWCodedElements, void(const AdamWTensor&, const AdamWScalars&, Range));
SNUG_VERSIONS(DequantizeTile, void(const FrozenTile&));
SNUG_VERSIONS(QuantizeNf4Blocks, void(const QuantizeNf4Params&, float*, Range));
SNUG_VERSIONS(SumSquaresElements, double(const NormTensor&, Range));

namespace {

// Elements [kFar, kFar + kSome) of tensors of so many; kFar begins a block of everything.
constexpr int64_t kFar = (int64_t{1} << 31) + (int64_t{1} << 20), kSome = 300, kN = kFar + kSome;

// kN elements, those from kFar on the same as `near`.
template <typename T>
class FarEnd {
 public:
  explicit FarEnd(const std::vector<T>& near) : memory_(kN * sizeof(T)) {
    if (data() != nullptr) std::copy(near.begin(), near.end(), end());
  }
  T* data() { return reinterpret_cast<T*>(memory_.data()); }
  T* end() { return data() + kFar; }

 private:
  SparseMemory memory_;
};

std::vector<float> Normal(uint32_t seed) {
  Matrix m(1, kSome);
  m.Fill(seed);
  return {m.floats(), m.floats() + kSome};
}

template <typename T>
void ExpectEnd(FarEnd<T>& far, const std::vector<T>& near) {
  EXPECT_EQ(std::memcmp(far.end(), near.data(), near.size() * sizeof(T)), 0);
}

TEST(FarElementsTest, SpansAreEveryElementOnce) {
  struct Tensor {
    int64_t n;
  };
  constexpr Tensor kTensors[] = {{7}, {0}, {kN}, {1}};
  int64_t tensor = 0, next = 0;
  cpu::Span cursor;
  std::vector<cpu::Span> spans(cpu::kGroupSpans);
  while (const int64_t filled = cpu::NextSpans(kTensors, 4, cursor, spans.data())) {
    for (int64_t i = 0; i < filled; ++i) {
      const auto& [of, elements] = spans[i];
      while (next == kTensors[tensor].n && of != tensor) {
        ++tensor;
        next = 0;
      }
      ASSERT_EQ(of, tensor);
      ASSERT_EQ(elements.begin, next);
      ASSERT_GT(elements.end, next);
      ASSERT_LE(elements.end - next, cpu::kSpanElements);
      next = elements.end;
    }
  }
  EXPECT_EQ(tensor, 3);
  EXPECT_EQ(next, 1);
}

class FarAdamWTest : public testing::Test {
 protected:
  void SetUp() override {
    if (p_.data() == nullptr || g_.data() == nullptr) GTEST_SKIP() << "no address space for it";
  }
  AdamWScalars scalars() const { return ScalarsOf(params_); }

  const AdamWParams params_ = {.step = 3, .lr = 0.1, .weight_decay = 0.01};
  std::vector<float> near_p_ = Normal(1), near_g_ = Normal(2);
  FarEnd<float> p_ = FarEnd<float>(near_p_), g_ = FarEnd<float>(near_g_);
};

TEST_F(FarAdamWTest, Fp32Moments) {
  std::vector<float> near_m = Normal(3), near_v = std::vector<float>(kSome, 0.5f);
  std::vector<bf16> near_copy(kSome);
  FarEnd<float> m(near_m), v(near_v);
  FarEnd<bf16> copy(near_copy);
  if (copy.data() == nullptr) GTEST_SKIP();
  const AdamWTensor near = {.p = near_p_.data(),
                            .g = near_g_.data(),
                            .m = near_m.data(),
                            .v = near_v.data(),
                            .copy = near_copy.data(),
                            .n = kSome};
  AdamWTensor far = {.p = p_.data(), .g = g_.data(), .m = m.data(), .v = v.data()};
  far.copy = copy.data();
  far.n = kN;
  AdamWElements(near, scalars(), Range{0, kSome});
  AdamWElements(far, scalars(), Range{kFar, kN});
  EXPECT_NE(near_p_, Normal(1));
  ExpectEnd(p_, near_p_);
  ExpectEnd(m, near_m);
  ExpectEnd(v, near_v);
  ExpectEnd(copy, near_copy);
}

TEST_F(FarAdamWTest, MomentsIn8Bits) {
  std::vector<uint8_t> near_m(kSome, 200), near_v(kSome, 90);
  std::vector<float> near_m_scale = {0.5f, 0.25f}, near_v_scale = {0.1f, 0.2f};
  FarEnd<uint8_t> m(near_m), v(near_v);
  FarEnd<float> scales({});
  if (scales.data() == nullptr) GTEST_SKIP();
  // Both scales of the far blocks lie in one piece of memory, m's before v's.
  constexpr int64_t kBlocks = CodeBlocks(kN), kBlock = kFar / kCodeBlock;
  float *m_scale = scales.data(), *v_scale = m_scale + kBlocks;
  for (int64_t b = 0; b < 2; ++b) {
    m_scale[kBlock + b] = near_m_scale[b];
    v_scale[kBlock + b] = near_v_scale[b];
  }
  const AdamWTensor near = {
      .p = near_p_.data(),
      .g = near_g_.data(),
      .n = kSome,
      .codes = {near_m.data(), near_v.data(), near_m_scale.data(), near_v_scale.data()}};
  const AdamWTensor far = {
      .p = p_.data(), .g = g_.data(), .n = kN, .codes = {m.data(), v.data(), m_scale, v_scale}};
  AdamWCodedElements(near, scalars(), Range{0, kSome});
  AdamWCodedElements(far, scalars(), Range{kFar, kN});
  EXPECT_NE(near_p_, Normal(1));
  ExpectEnd(p_, near_p_);
  ExpectEnd(m, near_m);
  ExpectEnd(v, near_v);
  for (int64_t b = 0; b < 2; ++b) {
    EXPECT_EQ(m_scale[kBlock + b], near_m_scale[b]);
    EXPECT_EQ(v_scale[kBlock + b], near_v_scale[b]);
  }
}

TEST(FarElementsTest, SumsSquares) {
  const std::vector<float> near = Normal(4);
  FarEnd<float> far(near);
  if (far.data() == nullptr) GTEST_SKIP();
  const double sum = SumSquaresElements(NormTensor{.x = near.data(), .n = kSome}, Range{0, kSome});
  EXPECT_GT(sum, 0.0);
  EXPECT_EQ(SumSquaresElements(NormTensor{.x = far.data(), .n = kN}, Range{kFar, kN}), sum);
}

constexpr int64_t kNf4FarBlock = kFar / kNf4Block, kNf4FarGroup = kNf4FarBlock / kNf4Group;
static_assert(kNf4FarGroup * kNf4Group * kNf4Block == kFar);

// The last elements of a weight of one row: their codes, the blocks' absmax, and the group of
// these.
TEST(FarElementsTest, QuantizesNf4) {
  std::vector<float> near_w = Normal(6), near_absmax(Nf4Blocks(kSome)), near_scale(1);
  std::vector<uint8_t> near_codes(Nf4CodeBytes(kSome)), near_absmax_codes(near_absmax.size());
  FarEnd<float> w(near_w);
  SparseMemory codes(Nf4CodeBytes(kN)), absmax(4 * Nf4Blocks(kN)), scales(4 * Nf4Groups(kN)),
      absmax_codes(Nf4Blocks(kN));
  if (w.data() == nullptr || codes.data() == nullptr) GTEST_SKIP();
  float offset = 0.5f, *far_absmax = reinterpret_cast<float*>(absmax.data()),
        *far_scales = reinterpret_cast<float*>(scales.data());
  const QuantizeNf4Params near = {
      .w = near_w.data(),
      .to = {near_codes.data(), near_scale.data(), near_absmax_codes.data(), &offset},
      .N = 1,
      .K = kSome,
      .w_stride = kSome};
  QuantizeNf4Params far = {.w = w.data(), .N = 1, .K = kN, .w_stride = kN};
  far.to = {codes.data(), far_scales, reinterpret_cast<uint8_t*>(absmax_codes.data()), &offset};
  QuantizeNf4Blocks(near, near_absmax.data(), Range{0, Nf4Blocks(kSome)});
  QuantizeNf4Blocks(far, far_absmax, Range{kNf4FarBlock, Nf4Blocks(kN)});
  QuantizeNf4Group(near, kDynamicMap, near_absmax.data(), 0);
  QuantizeNf4Group(far, kDynamicMap, far_absmax, kNf4FarGroup);
  EXPECT_GT(near_scale[0], 0.0f);
  const auto same = [](const char* at, const auto& expected) {
    return std::memcmp(at, expected.data(), expected.size() * sizeof(expected[0])) == 0;
  };
  EXPECT_TRUE(same(codes.data() + kFar / 2, near_codes));
  EXPECT_TRUE(same(absmax.data() + 4 * kNf4FarBlock, near_absmax));
  EXPECT_TRUE(same(absmax_codes.data() + kNf4FarBlock, near_absmax_codes));
  EXPECT_EQ(far_scales[kNf4FarGroup], near_scale[0]);
}

// Row 1 of a weight whose row 0 has kFar elements.
TEST(FarElementsTest, DequantizesNf4) {
  constexpr int64_t kBlock = kNf4FarBlock, kGroup = kNf4FarGroup;
  SparseMemory memory(Nf4Bytes(2 * kFar, true));
  if (memory.data() == nullptr) GTEST_SKIP();
  char* at = memory.data();
  Nf4Weight far;
  far.offset = reinterpret_cast<float*>(at);
  far.absmax = far.offset + 1;
  far.absmax_codes = reinterpret_cast<uint8_t*>(far.absmax + Nf4Groups(2 * kFar));
  far.codes = far.absmax_codes + Nf4Blocks(2 * kFar);
  const Nf4Weight near = {.codes = static_cast<uint8_t*>(far.codes) + kFar / 2,
                          .absmax = far.absmax + kGroup,
                          .absmax_codes = far.absmax_codes + kBlock,
                          .offset = far.offset};
  *far.offset = 0.5f;
  near.absmax[0] = 2.0f;
  for (int64_t i = 0; i < kSome / 2; ++i) static_cast<uint8_t*>(near.codes)[i] = i * 37 % 256;
  for (int64_t b = 0; b < Nf4Blocks(kSome); ++b) near.absmax_codes[b] = 60 + 40 * b;
  std::vector<float> near_values(kSome), far_values(kSome);
  FrozenTile tile = {.W = {.nf4 = near}, .K = kSome, .rows = {0, 1}, .columns = {1, kSome}};
  tile.to = near_values.data();
  tile.stride = kSome;
  DequantizeTile(tile);
  tile.W.nf4 = far;
  tile.K = kFar;
  tile.rows = {1, 2};
  tile.to = far_values.data();
  DequantizeTile(tile);
  EXPECT_NE(near_values, std::vector<float>(kSome));
  EXPECT_EQ(near_values, far_values);
}

}  // namespace
}  // namespace snug::kernels
