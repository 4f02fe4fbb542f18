// What attention promises beside its numbers: the same bits, in place, nothing from what is not
// visible, cost and workspace in proportion to what is, and that bad arguments are refused.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/loops/loops.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// Also with less workspace than threads.
TEST(AttentionContractTest, SameBitsForAllThreadCounts) {
  if (!OnCpu()) GTEST_SKIP() << "of the CPU's threads";
  const int before = omp_get_max_threads();
  for (const AttentionCase& c :
       {AttentionCase{.lengths = {100, 3, 290}, .heads = 6, .kv_heads = 2, .D = 24},
        AttentionCase{.lengths = {200}, .heads = 8, .kv_heads = 8, .dtype = DType::kBF16},
        AttentionCase{.lengths = {70, 3}, .heads = 6, .kv_heads = 2, .earlier = {200, 300}}}) {
    Bytes first;
    for (int threads : {1, 2, 3, 5}) {
      omp_set_num_threads(threads);
      Attended run(c);
      run.Forward();
      run.Backward();
      if (first.empty()) first = AllBytes(run);
      EXPECT_EQ(AllBytes(run), first) << threads << " threads";
    }
    Attended run(c);
    run.Forward();
    AttentionBackwardParams p = run.BackwardParams();
    p.workspace_bytes = AttentionBackwardBytes(SizesOf(run.Shape(), 1));
    ASSERT_EQ(Name(AttentionBackward(p, nullptr)), "ok: ");
    EXPECT_EQ(AllBytes(run), first) << "room for one";
  }
  omp_set_num_threads(before);
}

TEST(AttentionContractTest, SameBitsFromRunToRun) {
  const AttentionCase c = {.lengths = {70, 3}, .kv_heads = 1, .D = 24, .dropout = 0.2};
  Attended first(c), second(c);
  for (Attended* run : {&first, &second}) {
    run->Forward();
    run->Backward();
  }
  EXPECT_EQ(AllBytes(first), AllBytes(second));
}

// The query of documents of 20 and 150 that is `row` of their last 3 and 5.
int64_t QueryOf(int64_t row) { return row < 3 ? 17 + row : 165 + row - 3; }

// On CUDA tiles of keys begin with a document's first key, whatever is beside it and whichever of
// its queries there are: generation gives the bits of a run over everything.
TEST(AttentionContractTest, SameBitsWhateverIsBesideARow) {
  if (OnCpu()) GTEST_SKIP() << "the CPU's tiles follow from the longest document";
  const AttentionCase whole = {.lengths = {20, 150}, .heads = 1, .kv_heads = 1, .window = 70};
  AttentionCase last = whole;
  last.lengths = {3, 5};
  last.earlier = {17, 145};
  Attended all(whole), few(last);
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t c = 0; c < whole.D; ++c) few.q.Set(row, c, all.q.At(QueryOf(row), c));
  }
  all.Forward();
  few.Forward();
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(few.lse.At(row, 0), all.lse.At(QueryOf(row), 0)) << row;
    for (int64_t c = 0; c < whole.D; ++c)
      EXPECT_EQ(few.o.At(row, c), all.o.At(QueryOf(row), c)) << row;
  }
}

// Each, and all together.
TEST(AttentionContractTest, GradientsMayLieOverTheirInputs) {
  for (int64_t kv_heads : OnDevice<int64_t>({8, 2}, {1})) {
    for (int over = 1; over < 8; ++over) {
      if (!OnCpu() && over != 1 && over != 6 && over != 7) continue;
      AttentionCase c = {.lengths = {OnCpu() ? 300 : 70, 20},
                         .heads = OnCpu() ? 8 : 2,
                         .kv_heads = kv_heads,
                         .D = OnCpu() ? 8 : 5};
      if (over == 7) c.earlier = {9, 40};
      Attended apart(c), inside(c);
      apart.Forward();
      apart.Backward();
      inside.Forward();
      AttentionBackwardParams p = inside.BackwardParams();
      Matrix& dq = (over & 1) != 0 ? inside.q : inside.dq;
      Matrix& dk = (over & 2) != 0 ? inside.k : inside.dk;
      Matrix& dv = (over & 4) != 0 ? inside.v : inside.dv;
      p.dq = dq.data();
      p.dk = dk.data();
      p.dv = dv.data();
      ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
      EXPECT_EQ(dq.bytes(), apart.dq.bytes()) << over;
      EXPECT_EQ(dk.bytes(), apart.dk.bytes()) << over;
      EXPECT_EQ(dv.bytes(), apart.dv.bytes()) << over;
    }
  }
}

TEST(AttentionContractTest, GradientsThatAreNotWantedAreNotNeeded) {
  for (int64_t kv_heads : OnDevice<int64_t>({8, 2}, {1})) {
    const AttentionCase c = {
        .lengths = {OnCpu() ? 70 : 40}, .heads = OnCpu() ? 8 : 1, .kv_heads = kv_heads};
    Attended all(c);
    all.Forward();
    all.Backward();
    for (int wanted = 0; wanted < 8; ++wanted) {
      Attended run(c);
      run.Forward();
      AttentionBackwardParams p = run.BackwardParams();
      if ((wanted & 1) == 0) p.dq = nullptr;
      if ((wanted & 2) == 0) p.dk = nullptr;
      if ((wanted & 4) == 0) p.dv = nullptr;
      ASSERT_EQ(Name(AttentionBackward(p, TestStream())), "ok: ");
      EXPECT_EQ(run.dq.bytes() == all.dq.bytes(), (wanted & 1) != 0);
      EXPECT_EQ(run.dk.bytes() == all.dk.bytes(), (wanted & 2) != 0);
      EXPECT_EQ(run.dv.bytes() == all.dv.bytes(), (wanted & 4) != 0);
    }
  }
}

// Other documents may hold anything, NaN as well; so may keys far behind the window.
TEST(AttentionContractTest, NothingComesFromWhatIsNotVisible) {
  const AttentionCase c = {.lengths = {50, 90, 40}, .D = 16, .window = 10};
  Attended clean(c), dirty(c);
  clean.Forward();
  clean.Backward();
  for (int64_t column = 0; column < dirty.k.C(); ++column) {
    for (int64_t row : {0, 49, 50, 140, 179}) {
      dirty.k.Set(row, column, NAN);
      dirty.v.Set(row, column, NAN);
    }
  }
  dirty.Forward();
  dirty.Backward();
  for (int64_t column = 0; column < c.heads * c.D; ++column) {
    for (int64_t row : {20, 80, 100, 139, 160}) {
      EXPECT_EQ(dirty.o.At(row, column), clean.o.At(row, column)) << row;
      EXPECT_EQ(dirty.dk.At(row, column), clean.dk.At(row, column)) << row;
    }
    for (int64_t row : {0, 9, 49, 50, 59, 140, 149, 179})
      EXPECT_TRUE(std::isnan(dirty.o.At(row, column))) << row;
  }
}

std::atomic<int64_t> counted;
void (*uncounted)(const TileProduct&);
void CountingMultiply(const TileProduct& product) {
  counted += 2 * product.rows * product.columns * product.terms * (product.pairs ? 2 : 1);
  uncounted(product);
}

// Operations of all products of a case: forward, backward.
std::pair<int64_t, int64_t> Operations(const AttentionCase& c) {
  const Loops& best = BestLoops();
  Loops counting = best;
  uncounted = best.multiply;
  counting.multiply = CountingMultiply;
  UseLoops(counting);
  Attended run(c);
  counted = 0;
  run.Forward();
  const int64_t forward = counted;
  counted = 0;
  run.Backward();
  UseLoops(best);
  return {forward, counted};
}

int64_t VisiblePairs(const AttentionCase& c) {
  int64_t pairs = 0;
  for (int64_t T : c.lengths) {
    for (int64_t i = 0; i < T; ++i) pairs += c.window == 0 ? i + 1 : std::min(i + 1, c.window);
  }
  return pairs * c.heads;
}

// T^2 / 2 in a document, T * w with a window, their sum over documents: counted in what the
// products do, which per row is at most a tile's rows and two panels more than what is visible.
TEST(AttentionContractTest, CostIsWhatIsVisible) {
  if (!OnCpu()) GTEST_SKIP() << "of the CPU's products; see WhatIsNotVisibleIsNotRead";
  for (const AttentionCase& c :
       {AttentionCase{.lengths = {2048}, .heads = 1, .kv_heads = 1, .D = 16},
        AttentionCase{.lengths = {2048}, .heads = 2, .kv_heads = 1, .D = 16, .window = 64},
        AttentionCase{.lengths = {2048}, .heads = 1, .kv_heads = 1, .D = 16, .window = 1},
        AttentionCase{.lengths = {2048}, .heads = 1, .kv_heads = 1, .D = 16, .bias = 2048},
        AttentionCase{.lengths = std::vector<int64_t>(16, 128), .D = 16},
        AttentionCase{.lengths = {100, 1000, 17, 400}, .D = 32}}) {
    const int64_t pairs = VisiblePairs(c);
    const int64_t beyond = (2 * kPanel + kTileRows) * c.tokens() * c.heads;
    const auto [forward, backward] = Operations(c);
    EXPECT_GE(forward, 4 * c.D * pairs) << c.Text();
    EXPECT_LE(forward, 4 * c.D * (pairs + beyond)) << c.Text();
    EXPECT_GE(backward, 10 * c.D * pairs) << c.Text();
    EXPECT_LE(backward, 10 * c.D * (pairs + beyond)) << c.Text();
  }
}

// Of a million keys only those in the window exist; the others lie outside of all memory.
TEST(AttentionContractTest, WhatIsNotVisibleIsNotRead) {
  constexpr int64_t kBefore = (1 << 20) - 128, kThere = 228, kQueries = 70;
  Attended run({.lengths = {kQueries},
                .heads = 1,
                .kv_heads = 1,
                .window = 40,
                .earlier = {kThere - kQueries}});
  const Expected expected(run);
  Attended far(run.c);
  far.key_counts = {kBefore + kThere};
  AttentionForwardParams p = far.ForwardParams();
  const auto begin = [](const Matrix& m) {
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(m.data()) -
                                         static_cast<uintptr_t>(kBefore * m.stride() * 4));
  };
  p.k = begin(far.k);
  p.v = begin(far.v);
  ASSERT_EQ(Name(AttentionForward(p, TestStream())), "ok: ");
  ExpectNear(far, far.o, expected.o, "o");
  ExpectNear(far, far.lse, expected.lse, "lse");
}

// A document's bytes of workspace grow with its length, not with its square.
TEST(AttentionContractTest, WorkspaceIsLinearInLength) {
  const auto sizes = [](int64_t T) {
    return AttentionSizes{.tokens = T,
                          .documents = 1,
                          .longest_queries = T,
                          .longest_keys = T,
                          .heads = 8,
                          .kv_heads = 8,
                          .D = 64,
                          .threads = 2};
  };
  EXPECT_EQ(AttentionForwardBytes(sizes(8192)) - AttentionForwardBytes(sizes(4096)),
            2 * 4096 * (64 + 2) * 4);
  EXPECT_EQ(AttentionBackwardBytes(sizes(8192)) - AttentionBackwardBytes(sizes(4096)),
            2 * 4096 * (64 + 1) * 4);
  EXPECT_EQ(AttentionBackwardStreamBytes(sizes(4096)), 4096 * 8 * (1 + 64) * 4);
}

TEST(AttentionContractTest, NothingToDoIsDone) {
  Attended run({.lengths = {0, 0}});
  run.Forward();
  run.Backward();
  Attended none({.lengths = {}});
  none.Forward();
}

TEST(AttentionContractTest, RefusesBadArguments) {
  Attended run({.lengths = {3, 2}, .heads = 4, .kv_heads = 2});
  const Bytes before = AllBytes(run);
  const std::vector<int64_t> falling = {0, 3, 2}, begins = {0, 3}, overlapping = {0, 2},
                             own = {3, 2}, few = {3, 1}, many = {3, kMaxStreamKeys + 1};
  const auto forward = [&](auto change) {
    AttentionForwardParams p = run.ForwardParams();
    change(p);
    return Name(AttentionForward(p, TestStream()));
  };
  const auto backward = [&](auto change) {
    AttentionBackwardParams p = run.BackwardParams();
    change(p);
    return Name(AttentionBackward(p, TestStream()));
  };
  using F = AttentionForwardParams;
  using B = AttentionBackwardParams;
  EXPECT_EQ(forward([](F& p) { p.shape.kv_heads = 3; }), "bad shape: heads");
  EXPECT_EQ(forward([](F& p) { p.shape.D = 0; }), "bad shape: D");
  EXPECT_EQ(forward([](F& p) { p.shape.query_offsets = nullptr; }), "null pointer: query_offsets");
  EXPECT_EQ(forward([&](F& p) { p.shape.query_offsets = falling.data(); }),
            "bad index: query_offsets");
  EXPECT_EQ(forward([&](F& p) { p.shape.key_begins = begins.data(); }), "null pointer: key_counts");
  EXPECT_EQ(forward([&](F& p) {
              p.shape.key_begins = begins.data();
              p.shape.key_counts = few.data();
            }),
            "bad index: key_counts");
  EXPECT_EQ(forward([](F& p) { p.shape.window = -1; }), "bad value: window");
  EXPECT_EQ(forward([](F& p) { p.shape.scale = NAN; }), "bad value: scale");
  EXPECT_EQ(forward([](F& p) { p.shape.softcap = -1.0f; }), "bad value: softcap");
  EXPECT_EQ(forward([](F& p) { p.shape.dropout = 1.0; }), "bad value: dropout");
  EXPECT_EQ(forward([](F& p) { p.k_stride = 15; }), "bad stride: k_stride");
  EXPECT_EQ(forward([](F& p) { p.lse = nullptr; }), "null pointer: lse");
  EXPECT_EQ(forward([](F& p) { p.shape.dtype = static_cast<DType>(3); }), "bad dtype: dtype");
  if (OnCpu()) {
    EXPECT_EQ(forward([](F& p) { p.workspace_bytes = 64; }), "bad value: workspace_bytes");
  } else {
    EXPECT_EQ(forward([](F& p) { p.shape.D = 257; }), "bad shape: D");
    EXPECT_EQ(forward([&](F& p) {
                p.shape.key_begins = p.shape.device_key_begins = begins.data();
                p.shape.key_counts = p.shape.device_key_counts = many.data();
              }),
              "bad shape: key_counts");
    EXPECT_EQ(forward([](F& p) { p.shape.device_query_offsets = nullptr; }),
              "null pointer: device_query_offsets");
    EXPECT_EQ(forward([&](F& p) {
                p.shape.key_begins = p.shape.device_key_begins = begins.data();
                p.shape.key_counts = own.data();
              }),
              "null pointer: device_key_counts");
  }
  EXPECT_EQ(backward([](B& p) { p.dO = nullptr; }), "null pointer: dO");
  EXPECT_EQ(backward([](B& p) { p.dk_stride = 1; }), "bad stride: dk_stride");
  EXPECT_EQ(backward([](B& p) { p.workspace_bytes = 64; }), "bad value: workspace_bytes");
  EXPECT_EQ(backward([&](B& p) {
              p.shape.key_begins = begins.data();
              p.shape.key_counts = begins.data();
            }),
            "bad index: key_counts");
  EXPECT_EQ(backward([&](B& p) {
              p.shape.key_begins = p.shape.device_key_begins = overlapping.data();
              p.shape.key_counts = p.shape.device_key_counts = own.data();
            }),
            "bad index: key_begins");
  EXPECT_EQ(AllBytes(run), before);
}

TEST(AttentionContractTest, RefusesAWindowWhereItIsNotCausal) {
  Attended run({.lengths = {3, 2}, .window = 3, .causal = false});
  EXPECT_EQ(Name(AttentionForward(run.ForwardParams(), TestStream())), "bad value: window");
  EXPECT_EQ(Name(AttentionBackward(run.BackwardParams(), TestStream())), "bad value: window");
}

// Linear in length and in entries, and no more than the keys that there are.
TEST(AttentionContractTest, WorkspaceOfABiasIsLinear) {
  const auto sizes = [](int64_t T, int64_t documents, int64_t entries) {
    return AttentionSizes{.tokens = T,
                          .documents = documents,
                          .longest_queries = T / documents,
                          .longest_keys = T / documents,
                          .heads = 8,
                          .kv_heads = 8,
                          .D = 64,
                          .bias_entries = entries};
  };
  const auto more = [&](auto bytes, int64_t T, int64_t documents, int64_t entries) {
    return bytes(sizes(T, documents, entries)) - bytes(sizes(T, documents, 0));
  };
  EXPECT_EQ(more(AttentionBackwardBytes, 8192, 1, 8192), 8192 * 8 * 4);
  EXPECT_EQ(more(AttentionBackwardBytes, 8192, 1, 1 << 20), 8192 * 8 * 4);
  EXPECT_EQ(more(AttentionBackwardBytes, 8192, 4, 128), 4 * 128 * 8 * 4);
  EXPECT_EQ(more(AttentionBackwardStreamBytes, 8192, 4, 128), (128 + 2 * 4) * 128 * 8 * 4);
  AttentionSizes two_sided = sizes(8192, 1, 1 << 20);
  two_sided.causal = false;
  EXPECT_EQ(AttentionBackwardBytes(two_sided) - AttentionBackwardBytes(sizes(8192, 1, 0)),
            2 * 8192 * 8 * 4);
}

TEST(AttentionContractTest, RefusesBadArgumentsOfGrids) {
  Attended run(
      {.lengths = {6, 2}, .causal = false, .bias = 25, .origin = 12, .pitch = 5, .widths = {3, 2}});
  const Bytes before = AllBytes(run);
  const auto forward = [&](auto change) {
    AttentionForwardParams p = run.ForwardParams();
    change(p.shape);
    return Name(AttentionForward(p, TestStream()));
  };
  using S = AttentionShape;
  EXPECT_EQ(forward([](S& s) { s.bias.pitch = -1; }), "bad value: bias.pitch");
  EXPECT_EQ(forward([](S& s) { s.causal = true; }), "bad value: bias.pitch");
  EXPECT_EQ(forward([&](S& s) {
              s.key_begins = s.device_key_begins = run.key_begins.data();
              s.key_counts = s.device_key_counts = run.key_counts.data();
            }),
            "bad value: bias.pitch");
  EXPECT_EQ(forward([](S& s) { s.bias.widths = nullptr; }), "null pointer: bias.widths");
  if (!OnCpu()) {
    EXPECT_EQ(forward([](S& s) { s.bias.device_widths = nullptr; }),
              "null pointer: bias.device_widths");
  }
  for (int64_t width : {0, 6}) {
    run.widths[0] = width;
    EXPECT_EQ(forward([](S&) {}), "bad value: bias.widths");
  }
  run.widths[0] = 3;
  EXPECT_EQ(forward([](S& s) { s.bias.origin = 6; }), "bad shape: bias.entries");
  EXPECT_EQ(forward([](S& s) { s.bias.entries = 19; }), "bad shape: bias.entries");
  EXPECT_EQ(AllBytes(run), before);
}

TEST(AttentionContractTest, RefusesBadArgumentsOfABias) {
  Attended run({.lengths = {3, 2}, .bias = 4});
  const Bytes before = AllBytes(run);
  const auto forward = [&](auto change) {
    AttentionForwardParams p = run.ForwardParams();
    change(p.shape.bias);
    return Name(AttentionForward(p, TestStream()));
  };
  const auto backward = [&](auto change) {
    AttentionBackwardParams p = run.BackwardParams();
    change(p);
    return Name(AttentionBackward(p, TestStream()));
  };
  EXPECT_EQ(forward([](AttentionBias& b) { b.entries = 0; }), "bad shape: bias.entries");
  EXPECT_EQ(forward([](AttentionBias& b) { b.stride = 3; }), "bad stride: bias.stride");
  EXPECT_EQ(forward([](AttentionBias& b) { b.origin = -1; }), "bad index: bias.origin");
  EXPECT_EQ(forward([](AttentionBias& b) { b.origin = 4; }), "bad index: bias.origin");
  using B = AttentionBackwardParams;
  EXPECT_EQ(backward([](B& p) { p.shape.bias.table = nullptr; }), "null pointer: bias.table");
  EXPECT_EQ(backward([](B& p) { p.d_bias_stride = 3; }), "bad stride: d_bias_stride");
  EXPECT_EQ(backward([&](B& p) {
              p.workspace_bytes = OnCpu() ? 64 : AttentionBackwardStreamBytes(SizesOf(p.shape, 1));
            }),
            "bad value: workspace_bytes");
  EXPECT_EQ(AllBytes(run), before);
}

}  // namespace
}  // namespace snug::kernels
