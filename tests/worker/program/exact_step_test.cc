#include "worker/program/planning/exact_step.h"

#include <algorithm>
#include <limits>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/planning/predict.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint32_t Bit(Stash stash) { return uint32_t{1} << static_cast<int>(stash); }

Program Small(const TrainingMode& mode = FullMode()) {
  return *BuildProgram(LlamaShape({4, 64, 4, 2, 96, 128}), mode);
}

LowerOptions Tokens(int64_t tokens) {
  return {.key = {.tokens = tokens, .documents = 2, .longest_document = (tokens + 1) / 2}};
}

PredictOptions Measured(int64_t tokens) {
  PredictOptions options;
  options.lower = Tokens(tokens);
  options.measures_drift = true;
  return options;
}

// Only layers whose sites a kind keeps count for it, and what is exact counts for none.
TEST(ExactStepTest, KindsAreThoseOfTheLayersThatReadAParameter) {
  const Program program = Small();
  EXPECT_THAT(InexactKindsOf(program, RecomputePlan(program, 2)), IsEmpty());
  const Plan plan = *PinnedPlan(program, {{"layers.1.*", Stash::kInt8},
                                          {"layers.2.*", Stash::kSampled},
                                          {"layers.3.*", Stash::kRecompute}});
  const std::vector<uint32_t> kinds = InexactKindsOf(program, plan);
  ASSERT_EQ(kinds.size(), program.parameters.size());
  const std::vector<uint32_t> by_layer = {0, Bit(Stash::kInt8), Bit(Stash::kSampled), 0};
  for (const Block& block : program.blocks) {
    for (const int parameter : block.parameters)
      EXPECT_EQ(kinds[static_cast<size_t>(parameter)],
                block.layer < 0 ? 0 : by_layer[static_cast<size_t>(block.layer)])
          << program.parameters[static_cast<size_t>(parameter)].key;
  }
}

// It lies in what there is, at the largest key that does, and hands each gradient of a layer over;
// those of the head and the embedding take no room.
TEST(ExactStepTest, TheStepIsTheLargestThatFits) {
  const Program program = Small();
  const LowerOptions options = Tokens(4096);
  const int64_t least = *LeastExactArena(program, options);
  const auto whole = ExactStepWithin(program, options, std::numeric_limits<int64_t>::max());
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->tape.key, options.key);
  EXPECT_LT(least, whole->tape.arena_bytes / 4);
  int64_t tokens = 0;
  for (const int64_t room : {least, (least + whole->tape.arena_bytes) / 2,
                             whole->tape.arena_bytes - 1, whole->tape.arena_bytes}) {
    const auto step = ExactStepWithin(program, options, room);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_LE(step->tape.arena_bytes, room);
    EXPECT_GE(step->tape.key.tokens, std::max(tokens, kLeastMeasuredTokens));
    EXPECT_TRUE(options.key.Covers(step->tape.key));
    tokens = step->tape.key.tokens;
  }
  EXPECT_EQ(tokens, options.key.tokens);
  EXPECT_THAT(ExactStepWithin(program, options, least - 1).status().message(),
              HasSubstr(" bytes; the arena has "));
  std::set<int32_t> handed, of_layers;
  for (const Instruction& line : whole->tape.instructions)
    if (line.kind == Instruction::Kind::kUpdate) handed.insert(line.parameters[0]);
  for (const Block& block : program.blocks)
    if (block.layer >= 0) of_layers.insert(block.parameters.begin(), block.parameters.end());
  EXPECT_EQ(handed, of_layers);
}

// A key smaller than the least is its own least.
TEST(ExactStepTest, AFewTokensAreMeasuredWhole) {
  const Program program = Small(LoraMode());
  const LowerOptions options = Tokens(7);
  EXPECT_EQ(ExactStepWithin(program, options, *LeastExactArena(program, options))->tape.key,
            options.key);
}

TEST(ExactStepTest, ReleasedGradientsCannotBeCompared) {
  TrainingMode mode = FullMode();
  EXPECT_TRUE(CanMeasureDrift(Small(mode)));
  mode.release_gradients = true;
  EXPECT_FALSE(CanMeasureDrift(Small(mode)));
}

// Where a step takes less than the exact one that measures it, it is the inexact plans that pay.
TEST(ExactStepTest, InexactPlansAloneHaveRoomForIt) {
  const Program program = Small();
  PredictOptions options = Measured(3);
  const int64_t least = *LeastExactArena(program, options.lower);
  const Plan coded = *PinnedPlan(program, {{"*", Stash::kInt8}});
  const Plan exact = RecomputePlan(program, 4);
  const int64_t measured = Predict(program, coded, options)->bytes.arena;
  const int64_t kept = Predict(program, exact, options)->bytes.arena;
  options.measures_drift = false;
  const int64_t unmeasured = Predict(program, coded, options)->bytes.arena;
  EXPECT_EQ(measured, std::max(least, unmeasured));
  EXPECT_LT(unmeasured, least);
  EXPECT_EQ(kept, Predict(program, exact, options)->bytes.arena);
  TrainingMode releasing = FullMode();
  releasing.release_gradients = true;
  const Program released = Small(releasing);
  EXPECT_EQ(Predict(released, coded, Measured(3))->bytes.arena,
            Predict(released, coded, options)->bytes.arena);
}

// Whatever the measurement takes: a job that allows more is no slower within a budget, and what is
// listed takes what it says.
TEST(ExactStepTest, PlansCountWhatTheirMeasurementTakes) {
  for (const int64_t tokens : {7, 60, 4096}) {
    const Program program = Small();
    const PredictOptions options = Measured(tokens);
    const int64_t least = *LeastExactArena(program, options.lower);
    const auto plans = *PredictPlans(program, options, {.fidelity = Fidelity::kApproximate});
    for (const Prediction& plan : plans) {
      EXPECT_TRUE(Verify(program, plan, options).ok()) << plan.plan.name;
      EXPECT_TRUE(IsExact(plan.shares) || plan.bytes.arena >= least) << plan.plan.name;
    }
    const auto exact = *PredictPlans(program, options, {});
    for (const Prediction& plan : exact) {
      const int64_t limit = plan.bytes.total();
      const PlanList within = {.limits = {limit}, .fidelity = Fidelity::kApproximate};
      const auto others = *PredictPlans(program, options, within);
      const int fastest = FastestThatFits(others, limit);
      ASSERT_GE(fastest, 0) << plan.plan.name << ", " << tokens << " tokens";
      EXPECT_LE(others[static_cast<size_t>(fastest)].relative_work, plan.relative_work * 1.001);
    }
  }
}

// Images are whole, and have all their stages.
TEST(ExactStepTest, AnImageIsTheLeastOfImages) {
  const ModelConfig config = WindowedShape(8);
  const Program program = *BuildProgram(config, FullMode());
  const int64_t tokens = config.tokens_of_image();
  const TapeKey key =
      WithStages({.tokens = 8 * tokens, .documents = 8, .longest_document = tokens}, config);
  const LowerOptions options = {.key = key};
  const auto one = ExactStepWithin(program, options, *LeastExactArena(program, options));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->tape.key.documents, 1);
  EXPECT_EQ(one->tape.key.tokens, tokens);
  EXPECT_EQ(one->tape.key, WithStages(one->tape.key, config));
}

}  // namespace
}  // namespace snug::program
