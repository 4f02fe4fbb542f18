// What must not exist: T x T scores or masks, and the logits of all tokens. Measured by the
// worker's allocator, nothing at rest counted.
#include "gtest/gtest.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"

namespace snug::execute {
namespace {

using program::DType;
using program::LlamaShape;
using program::TrainingMode;

// The most that the allocator gave beyond what it had given before.
int64_t MeasuredPeak(ToyRun& run, int recomputed_blocks) {
  TrackingAllocator& allocator = TestDevice().allocator();
  const int64_t at_rest = allocator.usage().current_bytes;
  allocator.ResetPeak();
  const auto tape = run.Lower(RecomputePlan(run.program(), recomputed_blocks));
  const auto loss = run.RunInArena(tape, TestDevice());
  EXPECT_TRUE(loss.ok()) << loss.status();
  return allocator.usage().peak_bytes - at_rest;
}

struct Case {
  TrainingMode mode;
  int recomputed_blocks;
};

TEST(GrowthTest, TwiceTheLengthOfADocumentTakesAtMost2Point05TimesThePeak) {
  for (const Case& c :
       {Case{program::FullMode(), 0}, Case{program::FullMode(), 1}, Case{program::LoraMode(), 0},
        Case{program::LoraMode(), 1}, Case{program::LoraMode({"all-linear"}, DType::kBF16), 0},
        Case{program::FullMode(DType::kBF16), 1}}) {
    double before = 0.0;
    for (int64_t tokens : {2048, 4096, 8192, 16384}) {
      ToyRun run(*BuildProgram(LlamaShape({1, 32, 2, 1, 64, 64}), c.mode), {tokens});
      const auto peak = static_cast<double>(MeasuredPeak(run, c.recomputed_blocks));
      if (before > 0.0) {
        EXPECT_LE(peak / before, 2.05) << tokens;
      }
      before = peak;
    }
  }
}

TEST(GrowthTest, TheLogitsOfAllTokensNeverExist) {
  constexpr int64_t kVocabulary = 20000, kTokens = 2048;
  for (const TrainingMode& mode : {program::FullMode(), program::LoraMode()}) {
    ToyRun run(*BuildProgram(LlamaShape({1, 16, 2, 1, 32, kVocabulary}), mode), {kTokens});
    EXPECT_LT(MeasuredPeak(run, 0), kTokens * kVocabulary * 4 / 3);
  }
}

}  // namespace
}  // namespace snug::execute
