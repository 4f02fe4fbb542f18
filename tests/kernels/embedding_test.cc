// Token embedding, forward and backward.
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr int64_t kVocabulary = 11;

SharedVector<int32_t> Ids(int64_t N) { return RepeatingIds(N, kVocabulary); }

void* Workspace() {
  static Bytes workspace(EmbeddingWorkspace(kEmbeddingChunk));
  return workspace.data();
}

EmbeddingBackwardParams Backward(const SharedVector<int32_t>& ids, const Matrix& dy, Matrix& dW) {
  return {.ids = ids.data(),
          .dy = dy.data(),
          .dW = dW.floats(),
          .N = dy.N(),
          .C = dy.C(),
          .V = dW.N(),
          .dy_stride = dy.stride(),
          .dW_stride = dW.stride(),
          .dtype = dy.dtype(),
          .workspace = Workspace()};
}

TEST(EmbeddingTest, ForwardCopiesRows) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t C : kWidths) {
        const SharedVector<int32_t> ids = Ids(N);
        Matrix W(kVocabulary, C, dtype), y(N, C, dtype);
        W.Fill(1);
        ASSERT_TRUE(EmbeddingForward({.ids = ids.data(),
                                      .W = W.data(),
                                      .y = y.data(),
                                      .N = N,
                                      .C = C,
                                      .V = kVocabulary,
                                      .W_stride = W.stride(),
                                      .y_stride = y.stride(),
                                      .dtype = dtype},
                                     TestStream())
                        .ok());
        EXPECT_TRUE(y.GapsUntouched());
        EXPECT_EQ(Dense(y), Map(y, [&](int64_t i, int64_t c) { return W.At(ids[i], c); }));
      }
    }
  }
}

// Rows times a scale, rounded once; the gradient likewise.
TEST(EmbeddingTest, ScalesRowsAndTheirGradient) {
  for (DType dtype : kTypes) {
    const SharedVector<int32_t> ids = Ids(3);
    Matrix W(kVocabulary, 33, dtype), y(3, 33, dtype), dW(kVocabulary, 33);
    W.Fill(5);
    ASSERT_TRUE(EmbeddingForward({.ids = ids.data(),
                                  .W = W.data(),
                                  .y = y.data(),
                                  .N = 3,
                                  .C = 33,
                                  .V = kVocabulary,
                                  .W_stride = W.stride(),
                                  .y_stride = y.stride(),
                                  .dtype = dtype,
                                  .scale = 8.5f},
                                 TestStream())
                    .ok());
    ExpectClose(y, Map(y, [&](int64_t i, int64_t c) { return 8.5 * W.At(ids[i], c); }));
    for (int64_t i = 0; i < kVocabulary; ++i) {
      for (int64_t c = 0; c < 33; ++c) dW.Set(i, c, 0.0);
    }
    ASSERT_TRUE(EmbeddingBackward({.ids = ids.data(),
                                   .dy = y.data(),
                                   .dW = dW.floats(),
                                   .N = 3,
                                   .C = 33,
                                   .V = kVocabulary,
                                   .dy_stride = y.stride(),
                                   .dW_stride = dW.stride(),
                                   .dtype = dtype,
                                   .scale = 8.5f,
                                   .workspace = Workspace()},
                                  TestStream())
                    .ok());
    ExpectClose(dW, Map(dW, [&](int64_t id, int64_t c) {
                  double sum = 0.0;
                  for (int64_t i = 0; i < 3; ++i) sum += ids[i] == id ? 8.5 * y.At(i, c) : 0.0;
                  return sum;
                }));
  }
}

// Ids that repeat add up; rows that no id names keep what they had.
TEST(EmbeddingTest, BackwardAddsRows) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t C : kWidths) {
        const SharedVector<int32_t> ids = Ids(N);
        Matrix dW(kVocabulary, C), dy(N, C, dtype);
        dW.Fill(2);
        dy.Fill(3);
        Reference expected = Dense(dW);
        for (int64_t i = 0; i < N; ++i) {
          for (int64_t c = 0; c < C; ++c) expected[ids[i] * C + c] += dy.At(i, c);
        }
        ASSERT_TRUE(EmbeddingBackward(Backward(ids, dy, dW), TestStream()).ok());
        ExpectClose(dW, expected);
      }
    }
  }
}

// Ids that repeat a thousand times and ids that come once, over more than one chunk: each element
// of dW takes its terms in the order of the rows, in fp32, on every device.
TEST(EmbeddingTest, TermsAreAddedInTheOrderOfTheRows) {
  constexpr int64_t kTokens = kEmbeddingChunk + 333;
  for (int64_t C : {1, 8, 31}) {
    SharedVector<int32_t> ids;
    for (int64_t i = 0; i < kTokens; ++i) {
      ids.push_back(static_cast<int32_t>(i % 3 == 0 ? 5 : 6 + i * 7919 % 1000));
    }
    Matrix dW(1006, C), dy(kTokens, C);
    dW.Fill(8);
    dy.Fill(9);
    std::vector<float> expected;
    for (double value : Dense(dW)) expected.push_back(static_cast<float>(value));
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t c = 0; c < C; ++c) {
        expected[ids[i] * C + c] += 0.3f * static_cast<float>(dy.At(i, c));
      }
    }
    EmbeddingBackwardParams p = Backward(ids, dy, dW);
    p.scale = 0.3f;
    ASSERT_TRUE(EmbeddingBackward(p, TestStream()).ok());
    EXPECT_EQ(Dense(dW), Reference(expected.begin(), expected.end()));
    EXPECT_TRUE(dW.GapsUntouched());
  }
}

TEST(EmbeddingTest, SameBitsForAllThreadCountsAndInstructionSets) {
  const SharedVector<int32_t> ids = Ids(301);
  Matrix dy(301, 131);
  dy.Fill(4);
  ExpectSameBitsEveryWay([&] {
    Matrix dW(kVocabulary, 131);
    dW.Fill(5);
    EXPECT_TRUE(EmbeddingBackward(Backward(ids, dy, dW), TestStream()).ok());
    return dW.bytes();
  });
}

TEST(EmbeddingTest, RefusesBadArguments) {
  SharedVector<int32_t> ids = {0, 10, 3};
  Matrix dW(kVocabulary, 31), dy(3, 31);
  dy.Fill(6);
  dW.Fill(7);
  const Bytes before = dW.bytes();
  const auto refused = [&](auto change) {
    EmbeddingBackwardParams p = Backward(ids, dy, dW);
    change(p);
    return Name(EmbeddingBackward(p, TestStream()));
  };
  using P = EmbeddingBackwardParams;
  EXPECT_EQ(refused([](P& p) { p.dW = nullptr; }), "null pointer: dW");
  EXPECT_EQ(refused([](P& p) { p.dW_stride = 30; }), "bad stride: dW_stride");
  EXPECT_EQ(dW.bytes(), before);
  if (!OnCpu()) {
    EXPECT_EQ(refused([](P& p) { p.workspace = nullptr; }), "null pointer: workspace");
    return;  // Nobody looks at ids before a launch.
  }
  EXPECT_EQ(refused([](P& p) { p.V = 10; }), "bad index: ids");
  ids[1] = -1;
  EXPECT_EQ(refused([](P&) {}), "bad index: ids");
  Matrix y(3, 31);
  EXPECT_EQ(Name(EmbeddingForward({.ids = ids.data(),
                                   .W = dW.data(),
                                   .y = y.data(),
                                   .N = 3,
                                   .C = 31,
                                   .V = 11,
                                   .W_stride = dW.stride(),
                                   .y_stride = y.stride()},
                                  TestStream())),
            "bad index: ids");
  EXPECT_EQ(dW.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
