#include "worker/program/planning/plan_memo.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/planning/predict.h"

namespace snug::program {
namespace {

using Facts = std::shared_ptr<const PlanFacts>;

Program ModelOf(int64_t layers) {
  return *BuildProgram(LlamaShape({.layers = layers,
                                   .width = 256,
                                   .heads = 4,
                                   .kv_heads = 4,
                                   .mlp_width = 512,
                                   .vocabulary = 1000}),
                       FullMode(DType::kF32));
}

TEST(PlanMemoTest, ThreadsThatAskForTheSameAtOnceShareIt) {
  const Program program = ModelOf(24);
  for (int64_t tokens = 512; tokens < 532; ++tokens) {
    const LowerOptions options{.key = {tokens, 1, tokens}};
    std::vector<Facts> facts(4);
    std::vector<std::thread> threads;
    for (Facts& one : facts)
      threads.emplace_back([&] { one = *PlanFactsOf(program, options, {}); });
    for (std::thread& thread : threads) thread.join();
    for (const Facts& one : facts) EXPECT_EQ(one, facts.front());
  }
}

TEST(PlanMemoTest, OtherBlocksKeysAndMachinesAreOtherFacts) {
  const LowerOptions options{.key = {512, 1, 512}};
  LowerOptions longer = options, narrower = options, shorter_passes = options;
  longer.key.tokens = 1024;
  narrower.machine.threads = options.machine.threads + 1;
  shorter_passes.head_rows = 64;
  const Facts facts = *PlanFactsOf(ModelOf(3), options, {});
  EXPECT_EQ(*PlanFactsOf(ModelOf(3), options, {}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(4), options, {}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(3), longer, {}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(3), narrower, {}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(3), shorter_passes, {}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(3), options, {.fidelity = Fidelity::kUnbiased}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(3), options, {.on_host = true}), facts);
  EXPECT_NE(*PlanFactsOf(ModelOf(3), options, {.least_code_bits = kFewestCodeBits}), facts);
}

// They lie in the arena, which their plans are priced by.
TEST(PlanMemoTest, ReleasedGradientsAreOtherFacts) {
  const ModelConfig config = LlamaShape({3, 256, 4, 4, 512, 1000});
  TrainingMode releasing = FullMode();
  releasing.release_gradients = true;
  const Program kept = *BuildProgram(config, FullMode());
  const Program released = *BuildProgram(config, releasing);
  PredictOptions options;
  options.lower.key = {512, 1, 512};
  for (const Program* program : {&kept, &released, &kept}) {
    const std::vector<Prediction> predictions = *PredictPlans(*program, options, {});
    for (const Prediction& prediction : predictions)
      EXPECT_TRUE(Verify(*program, prediction, options).ok());
  }
}

TEST(PlanMemoTest, WhatCannotBeLoweredIsRefusedAgainAndAgain) {
  const LowerOptions nothing{.key = {0, 0, 0}};
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(PlanFactsOf(ModelOf(3), nothing, {}).ok());
}

}  // namespace
}  // namespace snug::program
