// Every path of every kind of product against sums in double.
#include "worker/execute/gemm.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "worker/execute/gemm/paths.h"

namespace snug::execute {
namespace {

using program::DType;

float RoundToBF16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Rows with a gap behind each, of either number type.
struct Rows {
  Rows(int64_t rows, int64_t columns, DType dtype, uint32_t seed)
      : stride(columns + 3), dtype(dtype), values(rows * stride) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> any(-1.0f, 1.0f);
    for (float& x : values) x = dtype == DType::kBF16 ? RoundToBF16(any(random)) : any(random);
    bytes.resize(values.size() * static_cast<size_t>(program::SizeOf(dtype)));
    for (size_t i = 0; i < values.size(); ++i) Write(i, values[i]);
  }
  void Write(size_t i, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const auto half = static_cast<uint16_t>(bits >> 16);
    if (dtype == DType::kF32) std::memcpy(&bytes[4 * i], &x, 4);
    if (dtype == DType::kBF16) std::memcpy(&bytes[2 * i], &half, 2);
  }
  float Read(size_t i) const {
    uint32_t bits = 0;
    if (dtype == DType::kF32) std::memcpy(&bits, &bytes[4 * i], 4);
    if (dtype == DType::kBF16) std::memcpy(reinterpret_cast<char*>(&bits) + 2, &bytes[2 * i], 2);
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
  double At(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * stride + column)];
  }

  float* sums() { return reinterpret_cast<float*>(bytes.data()); }

  int64_t stride;
  DType dtype;
  std::vector<float> values;
  std::vector<char> bytes;
};

struct Case {
  int64_t m, n, k;
  DType dtype;
  int form = 0;  // 0: neither transposed, 1: b, 2: a.
  float alpha = 1.0f;
  bool add = false;
};

struct Product {
  explicit Product(const Case& c)
      : a(c.form == 2 ? c.k : c.m, c.form == 2 ? c.m : c.k, c.dtype, 1),
        b(c.form == 1 ? c.n : c.k, c.form == 1 ? c.k : c.n, c.dtype, 2),
        to(c.m, c.n, DType::kF32, 3) {
    call = {.a = a.bytes.data(), .b = b.bytes.data(), .m = c.m, .n = c.n};
    call.c = to.sums();
    call.k = c.k;
    call.a_stride = a.stride;
    call.b_stride = b.stride;
    call.c_stride = to.stride;
    call.a_transposed = c.form == 2;
    call.b_transposed = c.form == 1;
    call.dtype = c.dtype;
    call.alpha = c.alpha;
    call.add = c.add;
  }
  double Expected(int64_t i, int64_t j) const {
    double sum = 0.0;
    for (int64_t l = 0; l < call.k; ++l) {
      sum += (call.a_transposed ? a.At(l, i) : a.At(i, l)) *
             (call.b_transposed ? b.At(j, l) : b.At(l, j));
    }
    return call.alpha * sum + (call.add ? to.At(i, j) : 0.0);
  }
  // The largest error against the sums' size, and whether the gaps between rows are as they were.
  void Check(const std::string& what) const {
    const double tolerance = 1e-6 * std::sqrt(call.k + 1.0);
    for (int64_t i = 0; i < call.m; ++i) {
      for (int64_t j = 0; j < to.stride; ++j) {
        const auto at = static_cast<size_t>(i * to.stride + j);
        const double expected = j < call.n ? Expected(i, j) : to.At(i, j);
        ASSERT_NEAR(to.Read(at), expected, j < call.n ? tolerance : 0.0)
            << what << ": row " << i << ", column " << j << " of " << call.m << " x " << call.n
            << ", " << call.k << " terms";
      }
    }
  }
  Rows a, b, to;
  GemmCall call;
};

constexpr struct {
  const char* name;
  bool (*run)(const GemmCall&);
} kPaths[] = {{"onednn", OneDnnGemm}, {"aten", AtenGemm}, {"converted", ConvertedGemm}};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const int64_t sizes[][3] = {{1, 1, 1},     {31, 33, 1},    {1, 33, 31},
                              {70, 16, 130}, {129, 600, 65}, {31, 1, 530}};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [m, n, k] : sizes) {
      for (int form = 0; form < 3; ++form) {
        cases.push_back({m, n, k, dtype, form});
        cases.push_back({m, n, k, dtype, form, /*alpha=*/0.5f, /*add=*/true});
      }
    }
  }
  return cases;
}

// Each path gives the product, at sizes around those of its blocks and with gaps between rows, or
// says that it does not serve the kind.
TEST(GemmTest, EveryPathGivesTheProductAndLeavesGapsAlone) {
  int served[3] = {};
  for (const Case& c : Cases()) {
    for (size_t path = 0; path < std::size(kPaths); ++path) {
      Product product(c);
      if (!kPaths[path].run(product.call)) continue;
      ++served[path];
      product.Check(kPaths[path].name);
    }
  }
  EXPECT_EQ(served[1], 36);  // fp32 alone.
  EXPECT_EQ(served[2], 36);  // bf16 alone.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_GE(served[0], 36);  // fp32 everywhere, bf16 where the CPU has it.
#endif
}

// Whatever was chosen, a product is made: the paths stand in for one another.
TEST(GemmTest, AnyChoiceServesEveryKind) {
  const GemmChoice before = GemmChoiceInUse();
  for (int path = 0; path < kGemmPaths; ++path) {
    GemmChoice choice;
    choice.path.fill(static_cast<GemmPath>(path));
    UseGemmChoice(choice);
    for (const Case& c : Cases()) {
      Product product(c);
      Gemm(product.call);
      product.Check("chosen");
    }
  }
  UseGemmChoice(before);
}

// Attention multiplies blocks on the threads of a loop of its own.
TEST(GemmTest, ProductsInsideAParallelRegionAreWhole) {
  at::set_num_threads(4);
  const Case c{.m = 64, .n = 200, .k = 64, .dtype = DType::kBF16, .form = 1};
  for (const auto& path : kPaths) {
    std::deque<Product> products;
    for (int i = 0; i < 8; ++i) products.emplace_back(c);
    std::vector<int> served(products.size());
    at::parallel_for(0, static_cast<int64_t>(products.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        served[at] = path.run(products[at].call) ? 1 : 0;
      }
    });
    for (size_t i = 0; i < products.size(); ++i) {
      if (served[i] != 0) products[i].Check(path.name);
    }
  }
}

TEST(GemmTest, AMeasuredChoiceSurvivesItsText) {
  const GemmChoice measured = MeasureGemmChoice();
  const auto again = ParseGemmChoice(GemmChoiceText(measured));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->path, measured.path);
}

TEST(GemmTest, ATextOfAnotherFormatIsRefused) {
  const std::string text = GemmChoiceText(GemmChoice::Default());
  EXPECT_FALSE(ParseGemmChoice("").ok());
  EXPECT_FALSE(ParseGemmChoice(text + "a").ok());
  EXPECT_FALSE(ParseGemmChoice("2" + text.substr(1)).ok());
  EXPECT_FALSE(ParseGemmChoice(text.substr(0, text.size() - 1) + "z").ok());
}

}  // namespace
}  // namespace snug::execute
