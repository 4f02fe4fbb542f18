#include "worker/program/planning/host_plans.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/planning/form_plans.h"
#include "worker/program/planning/named_plan.h"
#include "worker/program/planning/predict.h"

namespace snug::program {
namespace {

constexpr int kLayers = 8;
constexpr int64_t kPlenty = int64_t{1} << 50;
constexpr double kRounding = 1.0 + 1e-12;

struct Budget {
  int64_t device_bytes = 0;
  int64_t host_bytes = kPlenty;
};

// A model on a machine, with what the planner knew of the host before there were mixes.
class Case {
 public:
  Case(Program program, const Machine& machine, int64_t tokens) : program_(std::move(program)) {
    options_.lower = {.key = {.tokens = tokens, .documents = 2, .longest_document = tokens / 2},
                      .machine = machine};
    keep_ = *Predict(program_, RecomputePlan(program_, 0), options_);
    for (const Plan& plan : FormPlans(program_, {.on_host = true}))
      of_layers_.push_back(*Predict(program_, plan, options_));
  }

  const Program& program() const { return program_; }
  const PredictOptions& options() const { return options_; }
  const Prediction& keep() const { return keep_; }
  const std::vector<Prediction>& of_layers() const { return of_layers_; }

  std::vector<Prediction> Plans(const Budget& budget) const {
    return *PredictPlans(program_, options_,
                         {.limits = {budget.device_bytes}, .host_bytes = budget.host_bytes});
  }

  Prediction Chosen(const Budget& budget) const {
    const std::vector<Prediction> plans = Plans(budget);
    const int chosen = FastestThatFits(plans, budget.device_bytes, budget.host_bytes);
    if (chosen < 0) {
      ADD_FAILURE() << "nothing fits " << budget.device_bytes << " and " << budget.host_bytes;
      return keep_;
    }
    return plans[static_cast<size_t>(chosen)];
  }

  // The fastest of the mixes that leave the host alone and the plans of whole layers.
  double SecondsWithoutMixes(const Budget& budget) const {
    double seconds = HUGE_VAL;
    const std::vector<Prediction> alone = Plans({budget.device_bytes, 0});
    const int fastest = FastestThatFits(alone, budget.device_bytes);
    if (fastest >= 0) seconds = alone[static_cast<size_t>(fastest)].seconds;
    for (const Prediction& plan : of_layers_) {
      if (FastestThatFits({plan}, budget.device_bytes, budget.host_bytes) == 0)
        seconds = std::min(seconds, plan.seconds);
    }
    return seconds;
  }

  // All that they keep of so many layers offloaded.
  const Prediction& Offloaded(int layers) const {
    const std::string name = "offload " + std::to_string(layers) + " of " + std::to_string(kLayers);
    return *std::find_if(of_layers_.begin(), of_layers_.end(),
                         [&](const Prediction& plan) { return plan.plan.name == name; });
  }

  // Nearer to the larger of two neighbours.
  Budget Between(int fewer_layers, int more_layers) const {
    const int64_t larger = Offloaded(fewer_layers).bytes.total();
    const int64_t smaller = Offloaded(more_layers).bytes.total();
    EXPECT_LT(smaller, larger);
    return {smaller + (larger - smaller) * 3 / 4};
  }

 private:
  Program program_;
  PredictOptions options_;
  Prediction keep_;
  std::vector<Prediction> of_layers_;
};

Program Model(const TrainingMode& mode = FullMode(), int64_t layers = kLayers) {
  return *BuildProgram(LlamaShape({layers, 64, 4, 2, 96, 128}), mode);
}

Machine WithHostRate(Machine machine, double bytes_per_second) {
  machine.rates[Limit::kToHost] = machine.rates[Limit::kFromHost] = bytes_per_second;
  return machine;
}

// On this CPU a byte is copied there and back in a tenth of the time that a pass over it takes:
// nothing is worth running again, and each byte that need not go to the host counts.
TEST(HostPlansTest, NoMoreGoesToTheHostThanABudgetAsksFor) {
  const Machine cpu = WithHostRate({.rates = Rates::Of(1e11, 1e10)}, 1e11);
  const Case model(Model(), cpu, 4096);
  for (const int layers : {2, 4}) {
    const Budget budget = model.Between(layers, layers + 2);
    const Prediction chosen = model.Chosen(budget);
    EXPECT_LE(chosen.bytes.total(), budget.device_bytes);
    EXPECT_LT(chosen.bytes.host, model.Offloaded(layers + 2).bytes.host);
    EXPECT_GT(chosen.bytes.host, 0);
    EXPECT_LT(chosen.seconds, model.SecondsWithoutMixes(budget)) << chosen.plan.name;
  }
}

// On this GPU all of a layer's stash takes longer to copy than its forward to compute. What of it
// hides, in each layer, comes nearly free; whole layers do not.
TEST(HostPlansTest, WhatHidesInEachLayerIsFasterThanWholeLayers) {
  const Machine gpu = {.cpu = false, .rates = Rates::Of(1e12, 5e10)};
  const Case any_rate(Model(), gpu, 8192);
  const double all = static_cast<double>(any_rate.Offloaded(kLayers).bytes.host);
  const Case model(Model(), WithHostRate(gpu, 2.0 * all / any_rate.keep().seconds), 8192);
  // Budgets below that of running all again, which is cheap here, down to all on the host.
  const int64_t least = model.Offloaded(kLayers).bytes.total();
  const int64_t again =
      Predict(model.program(), RecomputePlan(model.program(), kLayers), model.options())
          ->bytes.total();
  ASSERT_LT(least, again);
  for (const int quarters : {1, 2, 3}) {
    const Budget budget = {least + (again - least) * quarters / 4};
    const Prediction chosen = model.Chosen(budget);
    EXPECT_LE(chosen.bytes.total(), budget.device_bytes);
    EXPECT_LT(chosen.seconds, 0.99 * model.SecondsWithoutMixes(budget)) << chosen.plan.name;
  }
}

Machine RandomMachine(std::mt19937& random) {
  const auto draw = [&random](double least, double most) {
    return std::pow(10.0, std::uniform_real_distribution<double>(least, most)(random));
  };
  Machine machine = {.cpu = random() % 2 == 0, .rates = Rates::Of(draw(10, 14), draw(9.5, 12.5))};
  machine.rates[Limit::kToHost] = draw(8, 12);
  machine.rates[Limit::kFromHost] = draw(8, 12);
  return machine;
}

// Whatever the machine and the budgets: what is chosen is within them, no slower than a plan of
// whole layers or one that leaves the host alone, and no slower than what a smaller budget gets.
TEST(HostPlansTest, NoBudgetIsWorseOffThanByWholeLayersOrByLess) {
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const Case model(Model(i % 2 == 0 ? FullMode() : LoraMode()), RandomMachine(random), 1024);
    int64_t least = model.keep().bytes.total();
    for (const Prediction& plan : model.of_layers()) least = std::min(least, plan.bytes.total());
    for (const int64_t host_bytes : {kPlenty, model.Offloaded(kLayers).bytes.host / 3}) {
      const int64_t first = host_bytes == kPlenty ? least : model.keep().bytes.total() * 3 / 4;
      double slowest = HUGE_VAL;
      for (int64_t step = 0; step <= 6; ++step) {
        const Budget budget = {first + (model.keep().bytes.total() - first) * step / 6, host_bytes};
        if (std::isinf(model.SecondsWithoutMixes(budget))) continue;
        const Prediction chosen = model.Chosen(budget);
        EXPECT_LE(chosen.bytes.total(), budget.device_bytes);
        EXPECT_LE(chosen.bytes.host, host_bytes);
        EXPECT_LE(chosen.seconds, kRounding * model.SecondsWithoutMixes(budget));
        EXPECT_LE(chosen.seconds, kRounding * slowest);
        slowest = chosen.seconds;
      }
    }
  }
}

TEST(HostPlansTest, NoPlanPutsMoreOnTheHostThanItHas) {
  const Machine cpu = WithHostRate({.rates = Rates::Of(1e11, 1e10)}, 1e11);
  const Case model(Model(), cpu, 1024);
  const int64_t all = model.Offloaded(kLayers).bytes.host;
  for (const int64_t host_bytes : {all, all - 1, all / 2, all / 10, int64_t{1}}) {
    for (const Prediction& plan : model.Plans({kPlenty, host_bytes}))
      EXPECT_LE(plan.bytes.host, host_bytes) << plan.plan.name;
  }
}

// Also once it has been stored by the names of its sites and read back.
TEST(HostPlansTest, TheBytesOfAMixAreThoseOfItsTape) {
  std::mt19937 random(2);
  int mixes = 0, beside_recompute = 0;
  for (int i = 0; i < 6; ++i) {
    const Case model(Model(i % 2 == 0 ? FullMode() : LoraMode()), RandomMachine(random), 1000);
    const LowerOptions& lower = model.options().lower;
    for (const Prediction& plan : model.Plans({kPlenty, kPlenty})) {
      if (plan.bytes.host == 0 || !absl::StrContains(plan.plan.name, "%")) continue;
      ++mixes;
      EXPECT_TRUE(absl::StrContains(plan.plan.name, "offload")) << plan.plan.name;
      if (plan.shares.contains(Stash::kRecompute)) ++beside_recompute;
      EXPECT_TRUE(Verify(model.program(), plan, model.options()).ok());
      const NamedPlan named = NamedPlanOf(model.program(), plan.plan);
      const Tape tape = *Lower(model.program(), *PlanOf(model.program(), named), lower);
      const Replay replay = ReplayTape(tape);
      EXPECT_EQ(plan.bytes.host, replay.host_bytes);
      EXPECT_EQ(plan.peak.total(), replay.peak.total());
      EXPECT_EQ(plan.seconds, SecondsOf(tape, lower.machine));
    }
  }
  EXPECT_GT(mixes, 5);
  EXPECT_GT(beside_recompute, 0);
}

// Layers of two kinds, and a first one that has nothing trained before it.
TEST(HostPlansTest, KindsOfLayersAreMixedEachByItsOwnWays) {
  const Program program =
      *BuildProgram(FamilyShape("gemma2", {kLayers, 64, 4, 2, 96, 128}), LoraMode({"all-linear"}));
  const LowerOptions options = {.key = {.tokens = 1024, .documents = 2, .longest_document = 512},
                                .machine = WithHostRate({.rates = Rates::Of(1e11, 1e10)}, 1e11)};
  const PlanSpace space = *PlanSpace::Make(program, options);
  const std::vector<Plan> plans = *HostPlans(program, space, options);
  ASSERT_GT(plans.size(), 4u);
  EXPECT_LE(plans.size(), 200u);
  for (const Plan& plan : plans) {
    EXPECT_EQ(plan.layer_recipe.size(), size_t{kLayers});
    EXPECT_GT(Lower(program, plan, options)->host_bytes, 0);
  }
}

// A model of 80 layers has few: each takes a millisecond to lower.
TEST(HostPlansTest, DeepModelsHaveFew) {
  const Program program = Model(LoraMode(), 80);
  const LowerOptions options = {.key = {.tokens = 256, .documents = 1, .longest_document = 256},
                                .machine = {.cpu = false}};
  const PlanSpace space = *PlanSpace::Make(program, options);
  const size_t plans = HostPlans(program, space, options)->size();
  EXPECT_GE(plans, 3u);
  EXPECT_LE(plans, 20u);
}

}  // namespace
}  // namespace snug::program
