// Compaction to the trained tokens, against a loop.
#include "kernels/valid_tokens.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// Labels of which about one in `one_in` is ignored, and weights of which some are 0.
struct Tokens {
  SharedVector<int64_t> labels;
  SharedVector<float> weights;
  SharedVector<int32_t> index;
  SharedVector<int64_t> count;

  Tokens(int64_t N, unsigned one_in, uint32_t seed) : index(N + 1, -7), count(1, -7) {
    std::mt19937 engine(seed);
    for (int64_t i = 0; i < N; ++i) {
      labels.push_back(engine() % one_in == 0 ? -100 : static_cast<int64_t>(engine() % 50));
      weights.push_back(engine() % 5 == 0 ? 0.0f : 0.5f);
    }
  }
  ValidTokensParams Params() {
    return {.labels = labels.data(),
            .index = index.data(),
            .count = count.data(),
            .N = static_cast<int64_t>(labels.size()),
            .label_type = IndexType::kI64};
  }
  std::vector<int32_t> Expected(bool weighted) const {
    std::vector<int32_t> rows;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != -100 && (!weighted || weights[i] != 0.0f)) {
        rows.push_back(static_cast<int32_t>(i));
      }
    }
    return rows;
  }
};

void ExpectIndex(const Tokens& tokens, const std::vector<int32_t>& expected) {
  WaitForKernels();
  ASSERT_EQ(tokens.count[0], static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < tokens.index.size(); ++i) {
    ASSERT_EQ(tokens.index[i], i < expected.size() ? expected[i] : -7) << i;
  }
}

// MST-4: every label that is not ignored counts exactly once, wherever a tile or a warp ends, and
// nothing is written beyond.
TEST(ValidTokensTest, Mst4EveryTrainedTokenCountsOnce) {
  for (int64_t N : {0, 1, 31, 32, 33, 127, 1023, 1024, 1025, 4097}) {
    for (unsigned one_in : {1u, 2u, 1000u}) {
      SCOPED_TRACE(testing::Message() << N << " tokens, one in " << one_in << " ignored");
      Tokens tokens(N, one_in, static_cast<uint32_t>(N));
      ValidTokensParams p = tokens.Params();
      ASSERT_TRUE(ValidTokens(p, TestStream()).ok());
      ExpectIndex(tokens, tokens.Expected(false));
      std::fill(tokens.index.begin(), tokens.index.end(), -7);
      p.weights = tokens.weights.data();
      ASSERT_TRUE(ValidTokens(p, TestStream()).ok());
      ExpectIndex(tokens, tokens.Expected(true));
    }
  }
}

// MST-5: nothing to train on.
TEST(ValidTokensTest, Mst5AllIgnored) {
  Tokens tokens(130, 1, 1);
  const SharedVector<int32_t> labels(130, 3);
  ValidTokensParams p = tokens.Params();
  p.labels = labels.data();
  p.label_type = IndexType::kI32;
  p.ignore_label = 3;
  ASSERT_TRUE(ValidTokens(p, TestStream()).ok());
  ExpectIndex(tokens, {});
}

TEST(ValidTokensTest, RefusesBadArguments) {
  Tokens tokens(5, 2, 2);
  const auto refused = [&](auto change) {
    ValidTokensParams p = tokens.Params();
    change(p);
    return Name(ValidTokens(p, TestStream()));
  };
  using P = ValidTokensParams;
  EXPECT_EQ(refused([](P& p) { p.labels = nullptr; }), "null pointer: labels");
  EXPECT_EQ(refused([](P& p) { p.index = nullptr; }), "null pointer: index");
  EXPECT_EQ(refused([](P& p) { p.count = nullptr; }), "null pointer: count");
  EXPECT_EQ(refused([](P& p) { p.N = -1; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.N = int64_t{1} << 31; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.label_type = static_cast<IndexType>(9); }),
            "bad dtype: label_type");
  WaitForKernels();
  EXPECT_EQ(tokens.count[0], -7);
}

}  // namespace
}  // namespace snug::kernels
