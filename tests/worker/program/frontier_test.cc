#include "worker/program/planning/frontier.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_bounds.h"
#include "worker/program/planning/predict.h"

namespace snug::program {
namespace {

constexpr double kGB = 1024.0 * 1024.0 * 1000.0;

// A model of a random shape, family and training mode, at a random key.
struct Instance {
  Program program;
  LowerOptions options;
};

Instance RandomInstance(int least_layers, int most_layers, std::mt19937& random) {
  const auto draw = [&random](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const int64_t heads = int64_t{4} << draw(0, 3), kv_heads = heads >> draw(0, 2);
  const int64_t width = heads * (int64_t{64} << draw(0, 1));
  const LlamaSizes sizes{.layers = draw(least_layers, most_layers),
                         .width = width,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .mlp_width = width * draw(2, 4),
                         .vocabulary = draw(1000, 100'000)};
  const std::string family = FamilyNames()[random() % FamilyNames().size()];
  const ModelConfig config = draw(0, 2) > 0 ? LlamaShape(sizes) : FamilyShape(family, sizes);
  const DType compute = draw(0, 1) == 0 ? DType::kF32 : DType::kBF16;
  const std::vector<std::string> some = {"o_proj", "down_proj"};
  const TrainingMode lora =
      LoraMode(draw(0, 1) == 0 ? std::vector<std::string>{"all-linear"} : some, compute);
  const int64_t tokens = int64_t{256} << draw(0, 6);
  return {.program = *BuildProgram(config, draw(0, 1) == 0 ? FullMode(compute) : lora),
          .options = {.key = {tokens, draw(1, 4), tokens}}};
}

// How far a time is from the bound, which is looked for as long as the ratio is above `wanted`.
double RatioToBound(const PlanSpace& space, int64_t arena_bytes, double found, double wanted) {
  const double ratio = found / LowerBound(space, arena_bytes, found);
  if (ratio <= wanted) return ratio;
  return found / LowerBoundByCases(space, arena_bytes, found);
}

double FastestOf(const std::vector<FrontierPoint>& frontier, int64_t arena_bytes) {
  for (const FrontierPoint& point : frontier) {
    if (point.price.arena_bytes <= arena_bytes) return point.price.seconds;
  }
  ADD_FAILURE() << "no plan within " << arena_bytes;
  return 0.0;
}

Mix RandomMix(const PlanSpace& space, std::mt19937& random) {
  Mix mix(space.blocks());
  for (size_t b = 0; b < mix.size(); ++b)
    mix[b] = static_cast<uint16_t>(random() % space.KindOf(b).choices.size());
  return mix;
}

int64_t RandomBudget(const std::vector<FrontierPoint>& frontier, std::mt19937& random) {
  const int64_t least = frontier.back().price.arena_bytes;
  const int64_t most = frontier.front().price.arena_bytes;
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

// Everything that can be chosen, as far as a solver can bear it.
PlanSpace ThoroughSpace(const Instance& instance, const FormsAllowed& allowed = {}) {
  return *PlanSpace::Make(instance.program, instance.options, allowed,
                          {.rivals = 4, .least_gain = 0.0, .least_drop = 0.0});
}

constexpr FormsAllowed kEveryFidelity[] = {
    {Fidelity::kExact},
    {Fidelity::kUnbiased},
    {Fidelity::kApproximate},
    {.fidelity = Fidelity::kApproximate, .least_code_bits = kFewestCodeBits}};

// What the planner believes of a mix is what lowering and replay make of it, to the byte.
TEST(FrontierTest, TheBytesOfAMixAreThoseOfItsTape) {
  std::mt19937 random(1);
  std::set<Stash> met;
  for (int i = 0; i < 60; ++i) {
    Instance instance = RandomInstance(2, 6, random);
    instance.options.key.tokens += random() % 100;  // Not all of them multiples of the alignment.
    const PlanSpace space =
        *PlanSpace::Make(instance.program, instance.options, kEveryFidelity[i % 4]);
    for (const BlockKind& kind : space.kinds()) {
      for (const Choice& choice : kind.choices) {
        for (const SiteStash& stash : choice.recipe) met.insert(stash.kind);
      }
    }
    for (int j = 0; j < 5; ++j) {
      const Mix mix = RandomMix(space, random);
      const Tape tape = *Lower(instance.program, space.PlanOf(mix), instance.options);
      const Replay replay = ReplayTape(tape);
      EXPECT_EQ(space.Price(mix).arena_bytes, tape.arena_bytes);
      EXPECT_NEAR(space.Price(mix).seconds / SecondsOf(replay.work, instance.options.machine), 1.0,
                  1e-12);
      const LiveBytes peak = space.PeakOf(mix);
      EXPECT_EQ(peak.stash, replay.peak.stash);
      EXPECT_EQ(peak.scratch, replay.peak.scratch);
      EXPECT_EQ(peak.workspace, replay.peak.workspace);
    }
    LowerOptions forward = instance.options;
    forward.training = false;
    EXPECT_EQ(*ForwardArenaBytes(instance.program, instance.options),
              Lower(instance.program, RecomputePlan(instance.program, 1), forward)->arena_bytes);
  }
  EXPECT_THAT(met, testing::UnorderedElementsAre(Stash::kKeep, Stash::kRecompute, Stash::kChunk,
                                                 Stash::kInt8, Stash::kInt4, Stash::kTwoBit,
                                                 Stash::kSampled));
}

// On a GPU, where of each line what takes longer counts: its work or its start.
TEST(FrontierTest, TheSecondsOfAMixAreThoseOfItsTape) {
  std::mt19937 random(11);
  int mixed = 0;  // Tapes with lines of either kind.
  for (int i = 0; i < 12; ++i) {
    Instance instance = RandomInstance(2, 6, random);
    Machine& gpu = instance.options.machine;
    gpu = {.cpu = false, .rates = Rates::Of(6e14, 2.7e12)};
    gpu.rates[Limit::kRuns] = 2e4;
    const PlanSpace space = *PlanSpace::Make(instance.program, instance.options);
    for (int j = 0; j < 5; ++j) {
      const Mix mix = RandomMix(space, random);
      const Tape tape = *Lower(instance.program, space.PlanOf(mix), instance.options);
      const double seconds = SecondsOf(tape, gpu);
      EXPECT_NEAR(space.Price(mix).seconds / seconds, 1.0, 1e-12);
      if (seconds > 1.001 * SecondsOf(ReplayTape(tape).work, gpu)) ++mixed;
    }
  }
  EXPECT_GT(mixed, 0);
}

// 8 layers of the shape of Llama-3-8B, 16,384 tokens, full training in bf16.
TEST(FrontierTest, ALittleRecomputeGivesAQuarterOfTheMemoryBack) {
  ModelConfig config = Llama8B();
  config.layers = 8;
  const Program program = *BuildProgram(config, FullMode(DType::kBF16));
  const LowerOptions options{.key = {.tokens = 16384, .documents = 4, .longest_document = 4096}};
  const PlanSpace space = *PlanSpace::Make(program, options);
  const MixPrice keep = space.Price(space.RecomputeMix(0));
  EXPECT_NEAR(static_cast<double>(keep.arena_bytes) / kGB, 18.0, 0.05);
  const Plan pinned = *PinnedPlan(program, {{"layers.*.norm2.out", Stash::kRecompute},
                                            {"layers.*.mlp.act", Stash::kRecompute}});
  const Tape tape = *Lower(program, pinned, options);
  EXPECT_NEAR(static_cast<double>(tape.arena_bytes) / kGB, 13.8, 0.05);
  const std::vector<FrontierPoint> frontier = FrontierOf(space);
  EXPECT_LE(FastestOf(frontier, tape.arena_bytes) / keep.seconds, 1.0015);
  // Where "recompute k of 8" takes 1.049 times the work of keep.
  EXPECT_GT(space.Price(space.RecomputeMix(2)).seconds / keep.seconds, 1.045);
  EXPECT_GT(space.Price(space.RecomputeMix(1)).arena_bytes, tape.arena_bytes);
}

TEST(FrontierTest, LargeModelsAreWithinOnePercentOfTheLinearProgram) {
  std::mt19937 random(2);
  double worst = 1.0;
  for (int i = 0; i < 50; ++i) {
    const Instance instance = RandomInstance(32, 80, random);
    const std::vector<FrontierPoint> frontier =
        FrontierOf(*PlanSpace::Make(instance.program, instance.options));
    const int64_t budget = RandomBudget(frontier, random);
    const double found = FastestOf(frontier, budget);
    const double ratio = RatioToBound(ThoroughSpace(instance), budget, found, 1.01);
    worst = std::max(worst, ratio);
    EXPECT_LE(ratio, 1.01) << "instance " << i;
  }
  std::cout << "worst: " << worst << " of the bound\n";
}

// On two cores of a CPU memory costs little beside products, on an H100 the most: other mixes pay.
TEST(FrontierTest, LargeModelsAreWithinOnePercentWhateverTheMachine) {
  std::mt19937 random(7);
  double worst = 1.0;
  for (const Rates& rates : {Rates::Of(1.5e11, 2.5e10), Rates::Of(6e14, 2.7e12)}) {
    for (int i = 0; i < 25; ++i) {
      Instance instance = RandomInstance(32, 80, random);
      instance.options.machine.rates = rates;
      const std::vector<FrontierPoint> frontier =
          FrontierOf(*PlanSpace::Make(instance.program, instance.options));
      const int64_t budget = RandomBudget(frontier, random);
      const double found = FastestOf(frontier, budget);
      const double ratio = RatioToBound(ThoroughSpace(instance), budget, found, 1.01);
      worst = std::max(worst, ratio);
      EXPECT_LE(ratio, 1.01) << "instance " << i << " at " << rates[Limit::kProducts];
    }
  }
  std::cout << "worst: " << worst << " of the bound\n";
}

// The bound lies below the optimum: where it is near enough, the solver is not asked.
TEST(FrontierTest, SmallModelsAreWithinOnePercentOfTheOptimum) {
  std::mt19937 random(3);
  double worst = 1.0;
  int solved = 0;
  for (int i = 0; i < 50; ++i) {
    const Instance instance = RandomInstance(2, 31, random);
    const std::vector<FrontierPoint> frontier =
        FrontierOf(*PlanSpace::Make(instance.program, instance.options));
    const int64_t budget = RandomBudget(frontier, random);
    const double found = FastestOf(frontier, budget);
    const PlanSpace thorough = ThoroughSpace(instance);
    double best = LowerBound(thorough, budget, found);
    if (found > 1.005 * best) {
      best = Optimum(thorough, budget, found);
      ++solved;
    }
    worst = std::max(worst, found / best);
    EXPECT_LE(found / best, 1.01) << "instance " << i;
  }
  std::cout << "worst: " << worst << "; " << solved << " by the solver\n";
  EXPECT_GT(solved, 3);
}

// Two instances whose optimum is known by trying every mix.
TEST(FrontierTest, TheSolverFindsTheOptimum) {
  std::mt19937 random(4);
  for (int i = 0; i < 5; ++i) {
    const Instance instance = RandomInstance(2, 2, random);
    const PlanSpace space = *PlanSpace::Make(instance.program, instance.options);
    const int64_t budget = RandomBudget(FrontierOf(space), random);
    double best = 1e300;
    Mix mix(space.blocks(), 0);
    for (mix[1] = 0; mix[1] < space.KindOf(1).choices.size(); ++mix[1]) {
      for (mix[2] = 0; mix[2] < space.KindOf(2).choices.size(); ++mix[2]) {
        const MixPrice price = space.Price(mix);
        if (price.arena_bytes <= budget) best = std::min(best, price.seconds);
      }
    }
    EXPECT_NEAR(Optimum(space, budget, 1e300) / best, 1.0, 1e-12);
    EXPECT_LE(LowerBound(space, budget, 1.1 * best), best * (1.0 + 1e-12));
  }
}

TEST(FrontierTest, NoRecomputePlanIsBetter) {
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    const Instance instance = RandomInstance(2, 40, random);
    const PlanSpace space = *PlanSpace::Make(instance.program, instance.options);
    const std::vector<FrontierPoint> frontier = FrontierOf(space);
    for (int k = 0; k <= instance.program.config.layers; ++k) {
      const MixPrice price = space.Price(space.RecomputeMix(k));
      EXPECT_LE(FastestOf(frontier, price.arena_bytes), price.seconds);
    }
    EXPECT_EQ(frontier.front().price.seconds, space.Price(space.RecomputeMix(0)).seconds);
  }
}

// What a larger budget gives is never slower, and stays within it: to the byte at every plan.
TEST(FrontierTest, TimeFallsAsTheBudgetGrows) {
  std::mt19937 random(6);
  for (int i = 0; i < 20; ++i) {
    const Instance instance = RandomInstance(2, 40, random);
    const PredictOptions options{.lower = instance.options};
    std::vector<int64_t> limits;
    const auto first = *PredictPlans(instance.program, options, {});
    const auto smallest =
        std::min_element(first.begin(), first.end(), [](const auto& a, const auto& b) {
          return a.bytes.total() < b.bytes.total();
        })->bytes.total();
    for (const Prediction& plan : first) {
      for (int64_t less : {0, 1, 12345}) {
        if (plan.bytes.total() - less >= smallest) limits.push_back(plan.bytes.total() - less);
      }
    }
    std::sort(limits.begin(), limits.end());
    double slowest = 1e300;
    for (int64_t limit : limits) {
      const auto plans = *PredictPlans(instance.program, options, {.limits = {limit}});
      const int chosen = FastestThatFits(plans, limit);
      ASSERT_GE(chosen, 0);
      const Prediction& plan = plans[static_cast<size_t>(chosen)];
      EXPECT_LE(plan.bytes.total(), limit);
      EXPECT_LE(plan.relative_work, slowest);
      slowest = plan.relative_work;
    }
    EXPECT_TRUE(Verify(instance.program, first[first.size() / 2], options).ok());
  }
}

}  // namespace
}  // namespace snug::program
