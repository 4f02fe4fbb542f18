#include "worker/program/planning/predict.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/generation.h"

namespace snug::program {
namespace {

PredictOptions Tokens(int64_t tokens) {
  PredictOptions options;
  options.lower.key = {.tokens = tokens, .documents = 2, .longest_document = tokens / 2};
  options.context_bytes = 100;
  return options;
}

ModelConfig Small() { return LlamaShape({4, 64, 4, 2, 96, 128}); }

// 1 parameter of full training in fp32: 4 bytes of weight, 4 of gradient, 8 of AdamW.
TEST(PredictTest, StaticBytesOfFullTrainingAreSixteenPerParameter) {
  const Program program = *BuildProgram(Small(), FullMode());
  int64_t elements = 0;
  for (const Parameter& parameter : program.parameters) elements += parameter.elements();
  const Components bytes = StaticComponents(program, {8, 1, 8}, {}, 100);
  EXPECT_EQ(bytes.weights, 4 * elements);
  EXPECT_EQ(bytes.gradients, 4 * elements);
  EXPECT_EQ(bytes.optimizer, 8 * elements);
  EXPECT_EQ(bytes.adapter, 0);
  EXPECT_EQ(bytes.context, 100);
}

// In bf16: 2 bytes of weight, 4 of gradient, 12 of AdamW with the master.
TEST(PredictTest, StaticBytesOfFullTrainingInBf16AreEighteenPerParameter) {
  const Program program = *BuildProgram(Small(), FullMode(DType::kBF16));
  int64_t elements = 0;
  for (const Parameter& parameter : program.parameters) elements += parameter.elements();
  const Components bytes = StaticComponents(program, {8, 1, 8}, {}, 0);
  EXPECT_EQ(bytes.weights, 2 * elements);
  EXPECT_EQ(bytes.gradients, 4 * elements);
  EXPECT_EQ(bytes.optimizer, 12 * elements);
}

// In 8 bits: two bytes and two scales per block of 256 instead of eight bytes, but for small
// tensors and the embedding.
TEST(PredictTest, MomentsInEightBitsTakeAboutAQuarter) {
  TrainingMode mode = FullMode(DType::kBF16);
  const ModelConfig config = LlamaShape({4, 64, 4, 2, 128, 128});
  const int64_t whole = StaticComponents(*BuildProgram(config, mode), {8, 1, 8}, {}, 0).optimizer;
  mode.moments = MomentKind::k8Bit;
  const Program program = *BuildProgram(config, mode);
  int64_t saved = 0, coded = 0;
  for (const Parameter& parameter : program.parameters) {
    const int64_t n = parameter.elements();
    if (n < 4096 || parameter.key == "model.embed_tokens.weight") continue;
    EXPECT_EQ(n % 4096, 0);  // So that nothing below is rounded up.
    saved += 8 * n - 2 * (n + 4 * n / 256);
    ++coded;
  }
  EXPECT_EQ(coded, 4 * 5 + 1);  // q, o, gate, up, down of four layers, and the head.
  EXPECT_EQ(StaticComponents(program, {8, 1, 8}, {}, 0).optimizer, whole - saved);
}

// A frozen bf16 base costs 2 bytes a parameter, its adapter 16.
TEST(PredictTest, AFrozenBaseHasNeitherGradientNorOptimizer) {
  const Program program = *BuildProgram(Small(), LoraMode({"all-linear"}, DType::kBF16));
  int64_t base = 0, adapter = 0;
  for (const Parameter& parameter : program.parameters)
    (parameter.adapter ? adapter : base) += parameter.elements();
  const Components bytes = StaticComponents(program, {8, 1, 8}, {}, 0);
  EXPECT_EQ(bytes.weights, 2 * base);
  EXPECT_EQ(bytes.adapter, 4 * adapter);
  EXPECT_EQ(bytes.gradients + bytes.optimizer, 12 * adapter);
}

// Beside the weights and most of the batch, of which the same bytes lie on either device: what it
// adds up the norm in, and where documents begin, in 32 bits.
TEST(PredictTest, AGpuHoldsWhatACpuDoesNotNeed) {
  const Program program = *BuildProgram(Small(), LoraMode());
  const Components cpu = StaticComponents(program, {8, 1, 8}, {}, 0);
  const Components gpu = StaticComponents(program, {8, 1, 8}, {.cpu = false}, 0);
  EXPECT_EQ(gpu.weights, cpu.weights);
  EXPECT_EQ(gpu.optimizer, cpu.optimizer + 8256);
  EXPECT_EQ(gpu.inputs, cpu.inputs + 64);
  EXPECT_EQ(gpu.total(), cpu.total() + 8256 + 64);
}

// A driver gives whole pages: the arena has what is left of the last one, and no more than that.
TEST(PredictTest, AGpuIsHeldInWholePages) {
  const Program program = *BuildProgram(Small(), LoraMode());
  for (const int64_t tokens : {64, 512, 4096}) {
    PredictOptions options = Tokens(tokens);
    options.lower.machine.cpu = false;
    const Prediction p = *Predict(program, RecomputePlan(program, 0), options);
    const int64_t needed =
        Lower(program, RecomputePlan(program, 0),
              {.key = options.lower.key, .machine = options.lower.machine, .training = true})
            ->arena_bytes;
    EXPECT_EQ(p.bytes.held() % (2 << 20), 0);
    EXPECT_EQ(p.bytes.total(), p.bytes.held() + options.context_bytes);
    EXPECT_GE(p.bytes.arena, needed);
    EXPECT_LT(p.bytes.arena, needed + (2 << 20));
    EXPECT_EQ(p.peak.total() + p.alignment, p.bytes.arena);
  }
}

// Who answers and trains nothing holds the parameters and the batch, without gradients, masters and
// moments, and an arena as it is laid out, to the byte; on a GPU in whole pages.
TEST(PredictTest, AnswersTakeTheModelAndWhatTheyAreMadeIn) {
  const Program trained = *BuildProgram(Small(), LoraMode({"all-linear"}, DType::kBF16));
  const Program program = Frozen(trained);
  for (const bool cpu : {true, false}) {
    LowerOptions options{
        .key = GenerationKey(program.config, 37, 20), .machine = {.cpu = cpu}, .training = false};
    const Components bytes = *AnsweringBytes(program, options, 100);
    const Components training = StaticComponents(trained, options.key, options.machine, 100);
    EXPECT_EQ(bytes.weights, training.weights);
    EXPECT_EQ(bytes.adapter, training.adapter);
    EXPECT_EQ(bytes.inputs, training.inputs);
    EXPECT_EQ(bytes.gradients + bytes.optimizer + bytes.host, 0);
    const int64_t laid_out = LayOutGeneration(program, RecomputePlan(program, 0), options)->bytes;
    EXPECT_GE(bytes.arena, laid_out);
    EXPECT_LT(bytes.arena, laid_out + (cpu ? 1 : 2 * kGpuPageBytes));
    EXPECT_EQ(cpu ? 0 : bytes.held() % kGpuPageBytes, 0);
    options.key = GenerationKey(program.config, 37, 40000);  // More than fills a page.
    EXPECT_GT(AnsweringBytes(program, options, 100)->arena, bytes.arena);
  }
}

TEST(PredictTest, MoreRecomputeIsSmallerAndSlower) {
  const Program program = *BuildProgram(Small(), FullMode());
  const auto table = *PredictPlans(program, Tokens(512), {.most_mixes = 0});
  ASSERT_EQ(table.size(), 5u);
  EXPECT_EQ(table[0].relative_work, 1.0);
  for (size_t k = 1; k < table.size(); ++k) {
    EXPECT_GT(table[k].relative_work, table[k - 1].relative_work);
    EXPECT_LE(table[k].bytes.total(), table[k - 1].bytes.total());
  }
  EXPECT_LT(table[4].relative_work, 1.4);
}

// With exactly its bytes a plan is chosen; one byte less and the next smaller one is; below the
// smallest none.
TEST(PredictTest, TheBudgetDecidesToTheByte) {
  const Program program = *BuildProgram(Small(), FullMode());
  const auto table = *PredictPlans(program, Tokens(512), {.most_mixes = 0});
  EXPECT_EQ(FastestThatFits(table, table[0].bytes.total()), 0);
  const int next = FastestThatFits(table, table[0].bytes.total() - 1);
  EXPECT_GT(next, 0);
  EXPECT_LT(table[static_cast<size_t>(next)].bytes.total(), table[0].bytes.total());
  EXPECT_EQ(FastestThatFits(table, table[4].bytes.total() - 1), -1);
}

std::set<Stash> KindsOf(const Prediction& prediction) {
  std::set<Stash> kinds;
  for (const auto& [stash, share] : prediction.shares) kinds.insert(stash);
  return kinds;
}

// A job that lets more be done is never slower within a budget, and may fit where it did not; codes
// of 4 bits are for where 8 fit no more; each plan takes what its tape does.
TEST(PredictTest, FormsAreMixedBlockByBlock) {
  const Program program = *BuildProgram(Small(), LoraMode());
  const PredictOptions options = Tokens(4096);
  const auto fastest = [&](Fidelity fidelity, int64_t limit) {
    const auto table = *PredictPlans(program, options, {.limits = {limit}, .fidelity = fidelity});
    const int index = FastestThatFits(table, limit);
    return index < 0 ? 1e300 : table[static_cast<size_t>(index)].relative_work;
  };
  const auto exact = *PredictPlans(program, options, {});
  const auto coded = *PredictPlans(program, options, {.fidelity = Fidelity::kApproximate});
  std::set<Stash> met;
  int64_t smallest_of_8_bits = INT64_MAX, largest_of_4_bits = 0;
  for (const Prediction& plan : coded) {
    EXPECT_TRUE(Verify(program, plan, options).ok()) << plan.plan.name;
    const std::set<Stash> kinds = KindsOf(plan);
    met.insert(kinds.begin(), kinds.end());
    if (kinds.contains(Stash::kInt4))
      largest_of_4_bits = std::max(largest_of_4_bits, plan.bytes.total());
    else
      smallest_of_8_bits = std::min(smallest_of_8_bits, plan.bytes.total());
    EXPECT_LE(fastest(Fidelity::kApproximate, plan.bytes.total()),
              fastest(Fidelity::kExact, plan.bytes.total()));
  }
  EXPECT_TRUE(met.contains(Stash::kInt8) && met.contains(Stash::kInt4) &&
              met.contains(Stash::kChunk));
  EXPECT_LT(largest_of_4_bits, smallest_of_8_bits);
  const auto smaller = [](const Prediction& a, const Prediction& b) {
    return a.bytes.total() < b.bytes.total();
  };
  EXPECT_LT(std::min_element(coded.begin(), coded.end(), smaller)->bytes.total(),
            std::min_element(exact.begin(), exact.end(), smaller)->bytes.total());
}

// Plans that offload are as small as any: they hide none that leave the host alone.
TEST(PredictTest, PlansOnTheHostHideNoOthers) {
  const Program program = *BuildProgram(LlamaShape({24, 64, 4, 2, 96, 128}), LoraMode());
  PredictOptions options = Tokens(65536);
  options.lower.machine.cpu = false;
  Rates& rates = options.lower.machine.rates;
  rates[Limit::kToHost] = rates[Limit::kFromHost] = 1e15;
  const auto plans_alone = [&](int64_t host_bytes) {
    const PlanList list = {.fidelity = Fidelity::kApproximate, .host_bytes = host_bytes};
    const std::vector<Prediction> plans = *PredictPlans(program, options, list);
    std::vector<std::pair<std::string, int64_t>> alone;
    for (const Prediction& plan : plans)
      if (plan.bytes.host == 0) alone.emplace_back(plan.plan.name, plan.bytes.total());
    EXPECT_EQ(alone.size() < plans.size(), host_bytes > 0);
    return alone;
  };
  EXPECT_EQ(plans_alone(int64_t{1} << 40), plans_alone(0));
}

// The composition at the peak and the alignment make up the arena.
TEST(PredictTest, ComponentsOfThePeakSumToTheArena) {
  const Program program = *BuildProgram(Small(), LoraMode());
  const Prediction p = *Predict(program, RecomputePlan(program, 2), Tokens(256));
  EXPECT_EQ(p.peak.total() + p.alignment, p.bytes.arena);
  EXPECT_GE(p.alignment, 0);
  EXPECT_GT(p.peak.stash, 0);
}

// An evaluation batch larger than the training batch can need the larger arena, and does need the
// larger inputs.
TEST(PredictTest, EvaluationCounts) {
  const Program program = *BuildProgram(Small(), LoraMode());
  PredictOptions options = Tokens(64);
  const Prediction small = *Predict(program, RecomputePlan(program, 0), options);
  options.evaluation_key = {.tokens = 4096, .documents = 1, .longest_document = 4096};
  const Prediction large = *Predict(program, RecomputePlan(program, 0), options);
  EXPECT_GT(large.bytes.arena, small.bytes.arena);
  EXPECT_GT(large.bytes.inputs, small.bytes.inputs);
}

}  // namespace
}  // namespace snug::program
