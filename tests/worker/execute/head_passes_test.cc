// The head takes the loss in passes: whatever rows each has, the loss and the gradients are those
// of one pass over all of them. Only sums over rows have another order.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/execute/counting_source.h"
#include "tests/worker/execute/separate_memory.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "worker/program/replay.h"

namespace snug::execute {
namespace {

using program::FullMode;
using program::LlamaShape;
using program::LlamaSizes;
using program::ModelConfig;
using program::Tape;
using program::TrainingMode;

constexpr LlamaSizes kDecoder = {2, 32, 4, 2, 72, 61}, kEncoder = {2, 32, 4, 4, 72, 61};
constexpr double kLimit = 1e-4;  // Relative, of fp32 sums in another order.

struct Head {
  ModelConfig config;
  TrainingMode mode;
};

// Of tokens that are trained among others: apart from their table, with an adapter, tied to the
// table with a softcap, scaled, with a bias. Then of rows that are all trained: masked tokens,
// documents.
std::vector<Head> Heads() {
  ModelConfig scaled = program::T5Shape(/*gated=*/false, kEncoder, /*decoder_layers=*/1);
  scaled.distances = {.buckets = 32, .farthest = 128};
  ModelConfig biased = program::EncoderShape("bert", kEncoder);
  biased.task = program::Task::kTokenClassification;
  return {{LlamaShape(kDecoder), FullMode()},
          {LlamaShape(kDecoder), program::LoraMode({"lm_head"})},
          {program::FamilyShape("gemma2", kDecoder), FullMode()},
          {scaled, FullMode()},
          {biased, FullMode()},
          {program::MaskedShape("roberta", kEncoder), FullMode()},
          {program::EncoderShape("bert", kEncoder), FullMode()}};
}

Tape InPasses(const ToyRun& run, int32_t rows, bool training) {
  return *program::Lower(
      run.program(), RecomputePlan(run.program(), 0),
      {.key = run.key(), .machine = {.threads = 2}, .training = training, .head_rows = rows});
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = static_cast<double>(got[i]) - expected[i];
    error += off * off;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(error / norm);
}

TEST(HeadPassesTest, AnyPassesGiveTheGradientsOfOne) {
  for (const Head& head : Heads()) {
    ToyRun run(*BuildProgram(head.config, head.mode), {7, 1, 12});
    SCOPED_TRACE(head.config.model_type);
    const auto loss = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
    ASSERT_TRUE(loss.ok()) << loss.status();
    const std::vector<float> expected = run.Gradients();
    for (const int32_t rows : {1, 2, 5}) {
      const auto in_passes = run.RunInArena(InPasses(run, rows, /*training=*/true), TestDevice());
      ASSERT_TRUE(in_passes.ok()) << in_passes.status();
      EXPECT_NEAR(*in_passes, *loss, kLimit * *loss) << rows;
      EXPECT_LT(RelativeError(run.Gradients(), expected), kLimit) << rows;
      const auto forward = run.RunInArena(InPasses(run, rows, /*training=*/false), TestDevice());
      ASSERT_TRUE(forward.ok()) << forward.status();
      EXPECT_EQ(*forward, *in_passes) << rows;
    }
  }
}

// The first pass of the first micro-batch begins the gradients, every other pass adds to them.
TEST(HeadPassesTest, MicroBatchesAddUp) {
  for (const Head& head : Heads()) {
    ToyRun run(*BuildProgram(head.config, head.mode), {7, 1, 12});
    SCOPED_TRACE(head.config.model_type);
    const Tape tape = InPasses(run, 2, /*training=*/true);
    ASSERT_TRUE(run.RunInArena(tape, TestDevice()).ok());
    std::vector<float> twice = run.Gradients();
    for (float& gradient : twice) gradient *= 2.0f;
    ASSERT_TRUE(run.RunInArena(tape, TestDevice(), /*micro_batches=*/2).ok());
    EXPECT_LT(RelativeError(run.Gradients(), twice), kLimit);
  }
}

TEST(HeadPassesTest, PassesTakeTheTapesLiveBytes) {
  for (const Head& head : Heads()) {
    ToyRun run(*BuildProgram(head.config, head.mode), {7, 1, 12});
    SCOPED_TRACE(head.config.model_type);
    const Tape tape = InPasses(run, 2, /*training=*/true);
    CountingSource source;
    SeparateMemory memory(source);
    Executor executor(run.parameters(), TestDevice());
    const auto loss = run.Run(tape, memory, executor);
    ASSERT_TRUE(loss.ok()) << loss.status();
    EXPECT_EQ(source.peak(), ReplayTape(tape).peak.total());
    EXPECT_EQ(source.current(), 0);
  }
}

}  // namespace
}  // namespace snug::execute
