// Attention with a cache of keys: tokens that come a few at a time get what they get when all come
// at once, and a cache that is full is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/worker/execute/toy_run.h"
#include "worker/execute/op_run.h"

namespace snug::execute {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadWidth = 8, kCapacity = 400;
constexpr int kBlock = 1;  // Of two; the first has no attention.

struct Rows {
  Rows(int64_t count, int64_t width)
      : width(width), values(static_cast<size_t>(count * width), -7.0f) {}
  View view() {
    return {values.data(), static_cast<int64_t>(values.size()) / width, width,
            program::DType::kF32};
  }
  float* row(int64_t i) { return values.data() + i * width; }
  int64_t width;
  std::vector<float> values;
};

// Tokens of two documents, with their queries, keys and values.
struct Documents {
  std::vector<int64_t> lengths;
  Rows q, k, v, o, lse;

  explicit Documents(std::vector<int64_t> all)
      : lengths(all),
        q(all[0] + all[1], kHeads * kHeadWidth),
        k(all[0] + all[1], kKvHeads * kHeadWidth),
        v(all[0] + all[1], kKvHeads * kHeadWidth),
        o(all[0] + all[1], kHeads * kHeadWidth),
        lse(all[0] + all[1], kHeads) {}
  void Fill() {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (Rows* rows : {&q, &k, &v}) {
      for (float& value : rows->values) value = normal(engine);
    }
  }
  // Tokens first[d] .. first[d] + count[d] of each document of `all`.
  static Documents Part(Documents& all, const std::vector<int64_t>& first,
                        const std::vector<int64_t>& count) {
    Documents part(count);
    for (int d : {0, 1}) {
      for (int64_t i = 0; i < count[d]; ++i) {
        const int64_t from = (d == 0 ? 0 : all.lengths[0]) + first[d] + i;
        const int64_t to = (d == 0 ? 0 : count[0]) + i;
        std::memcpy(part.q.row(to), all.q.row(from), sizeof(float) * part.q.width);
        std::memcpy(part.k.row(to), all.k.row(from), sizeof(float) * part.k.width);
        std::memcpy(part.v.row(to), all.v.row(from), sizeof(float) * part.v.width);
      }
    }
    return part;
  }
  void Attend(int64_t window, const KvCache* cache) {
    const std::vector<int64_t> offsets = {0, lengths[0], lengths[0] + lengths[1]};
    const Batch batch = {
        .tokens = offsets[2], .documents = 2, .offsets = offsets.data(), .kv_cache = cache};
    program::Op op;
    op.code = program::OpCode::kAttention;
    op.attributes = {.heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_width = kHeadWidth,
                     .scale = 0.4,
                     .window = window};
    OpRun run;
    run.op = &op;
    run.block = kBlock;
    run.batch = &batch;
    run.device = &TestDevice();
    run.in = {q.view(), k.view(), v.view()};
    run.out = {o.view(), lse.view()};
    OpFunctionsOfKernels()[static_cast<size_t>(op.code)].forward(run);
  }
};

struct Cache {
  Rows k, v;
  std::vector<void*> keys, values;
  std::vector<int64_t> rows = {0, 0};
  Cache()
      : k(2 * kCapacity, kKvHeads * kHeadWidth),
        v(2 * kCapacity, kKvHeads * kHeadWidth),
        keys({nullptr, k.row(0)}),
        values({nullptr, v.row(0)}) {}
  KvCache view() const { return {keys.data(), values.data(), kCapacity, rows.data()}; }
};

// Two prompts of different lengths, then tokens one at a time; one document pauses meanwhile.
TEST(KvCacheTest, TokensThatComeLaterSeeThoseBefore) {
  for (int64_t window : {0, 50}) {
    Documents all({340, 320});
    all.Fill();
    all.Attend(window, nullptr);
    Cache cache;
    for (const std::vector<int64_t>& count :
         std::vector<std::vector<int64_t>>{{300, 5}, {1, 1}, {0, 300}, {3, 1}, {1, 0}, {35, 13}}) {
      Documents part = Documents::Part(all, cache.rows, count);
      const KvCache view = cache.view();
      part.Attend(window, &view);
      for (int d : {0, 1}) {
        for (int64_t i = 0; i < count[d] * part.o.width; ++i) {
          const float want = all.o.row((d == 0 ? 0 : all.lengths[0]) + cache.rows[d])[i];
          ASSERT_NEAR(part.o.row(d == 0 ? 0 : count[0])[i], want, 2e-6)
              << "after " << cache.rows[d];
        }
        cache.rows[d] += count[d];
      }
    }
    EXPECT_EQ(cache.rows, all.lengths);
    EXPECT_EQ(std::memcmp(cache.k.row(0), all.k.row(0), sizeof(float) * 340 * all.k.width), 0);
    EXPECT_EQ(cache.k.row(340)[0], -7.0f);  // Nothing behind the rows that came.
  }
}

// A decoder's tokens of one document see a source of 90; the encoder's see it without a cache.
TEST(KvCacheTest, ASourceIsReadOnceAndSeenByWhatComesLater) {
  constexpr int64_t kSource = 90, kTokens = 7;
  Documents source({kSource, 0}), decoder({kTokens, 0});
  source.Fill();
  decoder.Fill();
  Cache cache;
  int64_t read = 0;
  const auto attend = [&](int64_t first, int64_t tokens, int64_t sources, float* o, bool cached) {
    const std::vector<int64_t> offsets = {0, tokens}, source_offsets = {0, sources};
    const KvCache view = {cache.keys.data(), cache.values.data(), kCapacity, &read};
    const Batch batch = {.tokens = tokens,
                         .documents = 1,
                         .source_tokens = sources,
                         .offsets = offsets.data(),
                         .source_offsets = source_offsets.data(),
                         .source_cache = cached ? &view : nullptr};
    program::Op op;
    op.code = program::OpCode::kAttention;
    op.attributes = {.heads = kHeads,
                     .kv_heads = kKvHeads,
                     .head_width = kHeadWidth,
                     .scale = 0.4,
                     .causal = false,
                     .key_rows = program::Rows::kSource};
    std::vector<float> lse(static_cast<size_t>(tokens * kHeads));
    OpRun run;
    run.op = &op;
    run.block = kBlock;
    run.batch = &batch;
    run.device = &TestDevice();
    run.in = {decoder.q.view().Rows(first, tokens), source.k.view().Rows(0, sources),
              source.v.view().Rows(0, sources)};
    run.out = {View{o, tokens, decoder.o.width}, View{lse.data(), tokens, kHeads}};
    OpFunctionsOfKernels()[static_cast<size_t>(op.code)].forward(run);
  };
  std::vector<float> whole(static_cast<size_t>(kTokens * decoder.o.width)), row = whole;
  attend(0, kTokens, kSource, whole.data(), /*cached=*/false);
  for (int64_t t = 0; t < kTokens; ++t) {
    attend(t, 1, t == 0 ? kSource : 0, row.data(), /*cached=*/true);
    read = kSource;
    for (int64_t i = 0; i < decoder.o.width; ++i)
      ASSERT_NEAR(row[static_cast<size_t>(i)], whole[static_cast<size_t>(t * decoder.o.width + i)],
                  2e-6)
          << "token " << t;
  }
}

TEST(KvCacheTest, RefusesMoreThanItHolds) {
  Documents all({2, 1});
  all.Fill();
  Cache cache;
  cache.rows = {kCapacity - 1, 0};
  const KvCache view = cache.view();
  EXPECT_THROW(all.Attend(0, &view), std::runtime_error);
}

}  // namespace
}  // namespace snug::execute
