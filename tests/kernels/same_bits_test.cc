// Ops whose loops take other instructions on some sets give the same bytes on all that this machine
// has: conversions, exponentials, random words, lookups, sums; and whether their outputs go into
// the caches or past them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/columns.h"
#include "kernels/cpu/loops/cached_bytes.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/grad_norm.h"
#include "kernels/nf4.h"
#include "kernels/normalize.h"
#include "kernels/quantize.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "kernels/softmax.h"
#include "kernels/uniform_noise.h"

namespace snug::kernels {
namespace {

constexpr int64_t kRows = 7, kColumns = 1003, kElements = kRows * kColumns;  // With a tail.

std::vector<float> Normal(int64_t n) {
  static auto& random = *new std::mt19937(std::random_device{}());
  std::vector<float> x(n);
  for (float& v : x) v = std::normal_distribution<float>(0.0f, 3.0f)(random);
  return x;
}

// The same numbers of a type, as near as it has them.
std::vector<uint8_t> InType(const std::vector<float>& x, DType dtype) {
  std::vector<uint8_t> y(x.size() * SizeOf(dtype));
  const auto n = static_cast<int64_t>(x.size());
  EXPECT_TRUE(
      CastRows({.x = x.data(), .y = y.data(), .N = 1, .C = n, .y_dtype = dtype}, nullptr).ok());
  return y;
}

// Memory that begins at a cache line, as what is to go past the caches must.
struct alignas(64) Line {
  uint8_t bytes[64] = {};
  bool operator==(const Line&) const = default;
};

// What `op` leaves in a buffer of zeros, on each set and both ways into memory; the first one's is
// the one to meet.
void ExpectSameBytes(int64_t bytes, const std::function<Error(uint8_t*)>& op) {
  const Loops& best = BestLoops();
  const int64_t cached = CachedBytes();
  const std::vector<Line> zeros((bytes + 63) / 64);
  std::vector<Line> first;
  for (InstructionSet isa : {InstructionSet::kBaseline, InstructionSet::kAvx2,
                             InstructionSet::kAvx512, InstructionSet::kAvx512Bf16}) {
    const Loops* loops = LoopsOf(isa);
    if (loops == nullptr) continue;
    UseLoops(*loops);
    for (int64_t most : {cached, int64_t{0}}) {
      UseCachedBytes(most);
      std::vector<Line> result = zeros;
      EXPECT_TRUE(op(result[0].bytes).ok());
      if (first.empty()) first = result;
      EXPECT_EQ(first, result) << loops->name << (most == 0 ? ", past the caches" : "");
    }
  }
  UseLoops(best);
  UseCachedBytes(cached);
  EXPECT_NE(first, zeros);
}

// Subnormals, infinities and NaN of any bits among them.
std::vector<float> EveryKindOfNumber() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 65521) {
    for (uint32_t low : {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits) | 0x8000u}) {
      x.push_back(FloatOfBits(low));
    }
  }
  return x;
}

// To nearest even, as the scalar conversion.
TEST(SameBitsTest, Bf16OfEveryKindOfNumber) {
  const std::vector<float> x = EveryKindOfNumber();
  const auto n = static_cast<int64_t>(x.size());
  const auto cast = [&](uint8_t* y) {
    return CastRows({.x = x.data(), .y = y, .N = 1, .C = n, .y_dtype = DType::kBF16}, nullptr);
  };
  ExpectSameBytes(2 * n, cast);
  std::vector<bf16> stored(n);
  ASSERT_TRUE(cast(reinterpret_cast<uint8_t*>(stored.data())).ok());
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(stored[i].bits, ToBf16(x[i]).bits) << x[i];
}

TEST(SameBitsTest, F16OfEveryKindOfNumber) {
  const std::vector<float> x = EveryKindOfNumber();
  const auto n = static_cast<int64_t>(x.size());
  const auto cast = [&](uint8_t* y) {
    return CastRows({.x = x.data(), .y = y, .N = 1, .C = n, .y_dtype = DType::kF16}, nullptr);
  };
  ExpectSameBytes(2 * n, cast);
  std::vector<f16> stored(n);
  ASSERT_TRUE(cast(reinterpret_cast<uint8_t*>(stored.data())).ok());
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(stored[i].bits, ToF16(x[i]).bits) << x[i];
}

// And the way back, of all there are.
TEST(SameBitsTest, WidensEveryF16) {
  constexpr int64_t kAll = 65536;
  std::vector<uint16_t> x(kAll);
  std::iota(x.begin(), x.end(), uint16_t{0});
  const auto cast = [&](uint8_t* y) {
    return CastRows({.x = x.data(), .y = y, .N = 1, .C = kAll, .x_dtype = DType::kF16}, nullptr);
  };
  ExpectSameBytes(4 * kAll, cast);
  std::vector<float> wide(kAll);
  ASSERT_TRUE(cast(reinterpret_cast<uint8_t*>(wide.data())).ok());
  for (int64_t i = 0; i < kAll; ++i) ASSERT_EQ(BitsOf(wide[i]), BitsOf(ToFloat(f16{x[i]}))) << i;
}

// Of an output in rows of kColumns that begin at lines, and in rows that begin anywhere.
constexpr int64_t kStrides[] = {1008, 1005};

const std::vector<int32_t> kIndex = {6, 0, 3, 3, 1, 5, 2};

TEST(SameBitsTest, MovedRowsPastTheCaches) {
  const std::vector<float> x = Normal(kElements);
  for (int64_t stride : kStrides) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::vector<uint8_t> table = InType(x, dtype);
      SCOPED_TRACE(testing::Message() << stride << ", type " << static_cast<int>(dtype));
      const int64_t bytes = kRows * stride * SizeOf(dtype);
      ExpectSameBytes(bytes, [&](uint8_t* y) {
        return CastRows({.x = x.data(),
                         .y = y,
                         .N = kRows,
                         .C = kColumns,
                         .x_stride = kColumns,
                         .y_stride = stride,
                         .y_dtype = dtype},
                        nullptr);
      });
      ExpectSameBytes(bytes, [&](uint8_t* y) {
        return AddRows({.a = x.data(),
                        .b = x.data() + 1,
                        .y = y,
                        .N = kRows,
                        .C = kColumns - 1,
                        .a_stride = kColumns,
                        .b_stride = kColumns,
                        .y_stride = stride,
                        .y_dtype = dtype,
                        .scale = 0.3f},
                       nullptr);
      });
      ExpectSameBytes(bytes, [&](uint8_t* y) {
        return GatherRows({.x = table.data(),
                           .index = kIndex.data(),
                           .y = y,
                           .N = kRows,
                           .C = kColumns,
                           .x_rows = kRows,
                           .x_stride = kColumns,
                           .y_stride = stride,
                           .dtype = dtype},
                          nullptr);
      });
      for (float scale : {1.0f, 0.7f}) {
        ExpectSameBytes(bytes, [&](uint8_t* y) {
          return EmbeddingForward({.ids = kIndex.data(),
                                   .W = table.data(),
                                   .y = y,
                                   .N = kRows,
                                   .C = kColumns,
                                   .V = kRows,
                                   .W_stride = kColumns,
                                   .y_stride = stride,
                                   .dtype = dtype,
                                   .scale = scale},
                                  nullptr);
        });
      }
    }
  }
}

TEST(SameBitsTest, GatheredColumnsPastTheCaches) {
  std::vector<float> x = Normal(kElements);
  for (int64_t stride : kStrides) {
    ExpectSameBytes(kRows * stride * 4, [&](uint8_t* y) {
      return GatherColumns({.x = x.data(),
                            .ids = kIndex.data(),
                            .y = reinterpret_cast<float*>(y),
                            .N = kRows,
                            .R = kColumns,
                            .V = kRows,
                            .x_stride = kRows,
                            .y_stride = stride},
                           nullptr);
    });
  }
}

TEST(SameBitsTest, NormsPastTheCaches) {
  const std::vector<float> numbers = Normal(kElements), gamma = Normal(kColumns);
  const std::vector<float> r(kRows, 0.3f);
  for (int64_t stride : kStrides) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::vector<uint8_t> x = InType(numbers, dtype);
      const int64_t output = kRows * stride * SizeOf(dtype);
      ExpectSameBytes(2 * output + 4 * kRows, [&](uint8_t* y) {
        return NormalizeForward({.x = x.data(),
                                 .xhat = y,
                                 .r = reinterpret_cast<float*>(y + 2 * output),
                                 .N = kRows,
                                 .C = kColumns,
                                 .x_stride = kColumns,
                                 .xhat_stride = stride,
                                 .dtype = dtype,
                                 .eps = 1e-5f,
                                 .norm = Norm::kLayer,
                                 .z = y + output,
                                 .gamma = gamma.data(),
                                 .z_stride = stride},
                                nullptr);
      });
      ExpectSameBytes(output, [&](uint8_t* dx) {
        return NormalizeBackward({.dxhat = x.data(),
                                  .xhat = x.data(),
                                  .r = r.data(),
                                  .dx = dx,
                                  .N = kRows,
                                  .C = kColumns,
                                  .dxhat_stride = kColumns,
                                  .xhat_stride = kColumns,
                                  .dx_stride = stride,
                                  .dtype = dtype,
                                  .norm = Norm::kLayer,
                                  .gamma = gamma.data()},
                                 nullptr);
      });
    }
  }
}

TEST(SameBitsTest, Activations) {
  const std::vector<float> x = Normal(kElements);
  for (Activation h : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    const int64_t codes = CodeBytes(kColumns);
    ExpectSameBytes(4 * kElements + kRows * codes, [&](uint8_t* y) {
      return ActivationForward({.x = x.data(),
                                .y = y,
                                .codes = y + 4 * kElements,
                                .N = kRows,
                                .C = kColumns,
                                .x_stride = kColumns,
                                .y_stride = kColumns,
                                .code_stride = codes,
                                .activation = h,
                                .two_bit = TwoBitOf(h)},
                               nullptr);
    });
  }
}

// Every bf16 there is, and its codes: subnormals, infinities, NaN of any bits. ReLU passes on what
// is above 0.
TEST(SameBitsTest, ActivationsOfEveryBf16) {
  constexpr int64_t kAll = 65536, kCodes = CodeBytes(kAll);
  std::vector<uint16_t> x(kAll), y(kAll + kCodes / 2);
  std::iota(x.begin(), x.end(), uint16_t{0});
  for (Activation h :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu, Activation::kRelu}) {
    const auto forward = [&](void* to) {
      return ActivationForward({.x = x.data(),
                                .y = to,
                                .codes = static_cast<uint8_t*>(to) + 2 * kAll,
                                .N = 1,
                                .C = kAll,
                                .x_stride = kAll,
                                .y_stride = kAll,
                                .code_stride = kCodes,
                                .dtype = DType::kBF16,
                                .activation = h,
                                .two_bit = TwoBitOf(h)},
                               nullptr);
    };
    ExpectSameBytes(2 * kAll + kCodes, forward);
    ASSERT_TRUE(forward(y.data()).ok());
  }
  for (int64_t k = 0; k < kAll; ++k) {
    const bool nan = (k & 0x7fff) > 0x7f80;
    ASSERT_EQ(y[k], nan ? 0x7fc0 : k < 0x8000 ? k : 0) << k;
  }
}

// Each of them beside neighbours that are 1: in even places, then in odd ones.
TEST(SameBitsTest, ActivationsOfEveryBf16AmongOnes) {
  constexpr int64_t kAll = 65536;
  for (int64_t place : {0, 1}) {
    std::vector<uint16_t> x(2 * kAll, 0x3f80);
    for (int64_t k = 0; k < kAll; ++k) x[2 * k + place] = static_cast<uint16_t>(k);
    for (Activation h : {Activation::kSilu, Activation::kRelu}) {
      ExpectSameBytes(4 * kAll, [&](uint8_t* y) {
        return ActivationForward({.x = x.data(),
                                  .y = y,
                                  .N = 1,
                                  .C = 2 * kAll,
                                  .x_stride = 2 * kAll,
                                  .y_stride = 2 * kAll,
                                  .dtype = DType::kBF16,
                                  .activation = h},
                                 nullptr);
      });
    }
  }
}

// Their slopes, where exponentials come to 0 among them.
TEST(SameBitsTest, SlopesOfEveryBf16) {
  constexpr int64_t kAll = 65536;
  std::vector<uint16_t> x(kAll);
  std::iota(x.begin(), x.end(), uint16_t{0});
  const std::vector<uint16_t> ones(kAll, 0x3f80);
  for (Activation h : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    ExpectSameBytes(2 * kAll, [&](uint8_t* dx) {
      return ActivationBackward({.dy = ones.data(),
                                 .x = x.data(),
                                 .dx = dx,
                                 .N = 1,
                                 .C = kAll,
                                 .dy_stride = kAll,
                                 .x_stride = kAll,
                                 .dx_stride = kAll,
                                 .dtype = DType::kBF16,
                                 .activation = h},
                                nullptr);
    });
  }
}

TEST(SameBitsTest, Softmax) {
  const std::vector<float> x = Normal(kElements);
  for (DType dtype : {DType::kF32, DType::kBF16}) {  // Of bf16: half of the rows.
    ExpectSameBytes(4 * kElements, [&](uint8_t* p) {
      return SoftmaxForward({.x = x.data(),
                             .p = p,
                             .N = kRows,
                             .C = kColumns,
                             .x_stride = kColumns,
                             .p_stride = kColumns,
                             .dtype = dtype,
                             .scale = 0.5f},
                            nullptr);
    });
  }
}

TEST(SameBitsTest, DropoutNoiseAndStochasticRounding) {
  const std::vector<float> x = Normal(kElements);
  const RandomSite site = {.seed = 0x123456789abcdefu, .step = 3, .op = 5};
  ExpectSameBytes(4 * kElements, [&](uint8_t* y) {
    return Dropout({.x = x.data(),
                    .y = y,
                    .N = kRows,
                    .C = kColumns,
                    .x_stride = kColumns,
                    .y_stride = kColumns,
                    .rate = 0.3,
                    .site = site},
                   nullptr);
  });
  ExpectSameBytes(4 * kElements, [&](uint8_t* y) {
    // Blocks whose numbers carry into their upper word within a vector.
    return AddUniformNoise({.x = y,
                            .N = kRows,
                            .C = kColumns,
                            .x_stride = kColumns,
                            .first_row = (int64_t{1} << 32) / ((kColumns + 3) / 4) - 2,
                            .magnitude = 1.0f,
                            .site = site},
                           nullptr);
  });
  const int64_t blocks = RangeBlocks(kColumns);
  ExpectSameBytes(kElements + 4 * kRows * blocks, [&](uint8_t* y) {
    return Quantize({.x = x.data(),
                     .to = {.codes = y + 4 * kRows * blocks, .ranges = y, .codes_stride = kColumns},
                     .N = kRows,
                     .C = kColumns,
                     .x_stride = kColumns,
                     .dither = {.site = site}},
                    nullptr);
  });
}

// Gradients of one size, and of any: a moment may be 2^80 times another of its block.
TEST(SameBitsTest, MomentsInEightBits) {
  std::vector<float> g = Normal(kElements);
  for (int64_t i = kElements / 2; i < kElements; ++i) {
    g[static_cast<size_t>(i)] = std::ldexp(g[static_cast<size_t>(i)], static_cast<int>(-i % 80));
  }
  const int64_t blocks = CodeBlocks(kElements);
  ExpectSameBytes(6 * kElements + 2 + 8 * blocks, [&](uint8_t* y) {
    float* scales = reinterpret_cast<float*>(y + (6 * kElements + 2) / 4 * 4);
    AdamWTensor tensor = {.p = reinterpret_cast<float*>(y), .g = g.data(), .n = kElements};
    tensor.codes = {y + 4 * kElements, y + 5 * kElements, scales, scales + blocks};
    const AdamWParams p = {.tensors = &tensor, .count = 1, .step = 1, .lr = 0.1};
    const Error error = AdamW(p, nullptr);
    return error.ok() ? AdamW(p, nullptr) : error;  // Once from zeros, once from codes.
  });
}

TEST(SameBitsTest, Nf4BothWays) {
  const std::vector<float> w = Normal(kElements);
  const int64_t codes = Nf4CodeBytes(kElements), blocks = Nf4Blocks(kElements);
  ExpectSameBytes(4 * (kElements + blocks) + codes, [&](uint8_t* y) {
    const Nf4Weight weight = {.codes = y + 4 * (kElements + blocks),
                              .absmax = reinterpret_cast<float*>(y) + kElements};
    const Error error = QuantizeNf4(
        {.w = w.data(), .to = weight, .N = kRows, .K = kColumns, .w_stride = kColumns}, nullptr);
    if (!error.ok()) return error;
    return DequantizeNf4({.from = weight, .w = y, .N = kRows, .K = kColumns, .w_stride = kColumns},
                         nullptr);
  });
}

TEST(SameBitsTest, SumsOfSquaresAndAngles) {
  const std::vector<float> x = Normal(kElements), frequencies = Normal(64);
  ExpectSameBytes(8, [&](uint8_t* y) {
    const NormTensor tensor = {.x = x.data(), .n = kElements};
    return SumSquares({.tensors = &tensor, .count = 1, .sum_squares = reinterpret_cast<double*>(y)},
                      nullptr);
  });
  const std::vector<int32_t> positions = {0, 1, 17, 4095, 100000, 1 << 20};
  const auto N = static_cast<int64_t>(positions.size());
  ExpectSameBytes(8 * N * 64, [&](uint8_t* y) {
    return RopeTable({.positions = positions.data(),
                      .inv_freq = frequencies.data(),
                      .cos = reinterpret_cast<float*>(y),
                      .sin = reinterpret_cast<float*>(y) + N * 64,
                      .N = N,
                      .D = 128},
                     nullptr);
  });
}

}  // namespace
}  // namespace snug::kernels
