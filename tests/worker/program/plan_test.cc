#include "worker/program/plan.h"

#include <algorithm>
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/lowering/demand.h"
#include "worker/program/planning/named_plan.h"

namespace snug::program {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

ModelConfig Small() { return LlamaShape({2, 64, 4, 2, 96, 50}); }

std::vector<std::string> SiteNames(const Program& program) {
  std::vector<std::string> names;
  for (const Site& site : SitesOf(program)) names.push_back(site.name);
  return names;
}

Stash StashOf(const Program& program, const Plan& plan, const std::string& name) {
  for (const Site& site : SitesOf(program)) {
    if (site.name != name) continue;
    const int layer = program.blocks[static_cast<size_t>(site.block)].layer;
    const int recipe = plan.layer_recipe[static_cast<size_t>(layer)];
    return plan.recipes[static_cast<size_t>(recipe)][static_cast<size_t>(site.value)].kind;
  }
  ADD_FAILURE() << "no site " << name;
  return Stash::kKeep;
}

// Every linear is trained: all they read is a site. What no backward reads, and no way back to such
// a value, is none.
TEST(PlanTest, SitesOfFullTrainingAreWhatBackwardCanReach) {
  const std::vector<std::string> names = SiteNames(*BuildProgram(Small(), FullMode()));
  for (const char* site :
       {"input", "norm1.xhat", "norm1.r", "norm1.out", "attention.q_proj", "attention.q",
        "attention.k", "attention.v", "attention.out", "attention.lse", "attention.o_proj",
        "residual", "norm2.xhat", "norm2.out", "mlp.gate", "mlp.up", "mlp.act"}) {
    EXPECT_THAT(names, Contains(std::string("layers.1.") + site));
  }
  EXPECT_THAT(names, Not(Contains("layers.1.mlp.down")));
  EXPECT_THAT(names, Not(Contains("layers.1.output")));
}

// Adapters on q and v alone: a frozen linear keeps no input.
TEST(PlanTest, FrozenLinearsAskForNoInput) {
  const Program program = *BuildProgram(Small(), LoraMode({"q_proj", "v_proj"}));
  const std::vector<std::string> names = SiteNames(program);
  EXPECT_THAT(names, Contains("layers.0.attention.q_proj.za"));
  EXPECT_THAT(names, Not(Contains("layers.0.mlp.act")));
}

TEST(PlanTest, LongestLiteralPartOfAPatternWins) {
  const Program program = *BuildProgram(Small(), FullMode());
  const Plan plan = *PinnedPlan(program, {{"*", Stash::kKeep},
                                          {"layers.*.mlp.*", Stash::kRecompute},
                                          {"layers.1.mlp.gate", Stash::kKeep}});
  EXPECT_EQ(StashOf(program, plan, "layers.0.mlp.gate"), Stash::kRecompute);
  EXPECT_EQ(StashOf(program, plan, "layers.1.mlp.gate"), Stash::kKeep);
  EXPECT_EQ(StashOf(program, plan, "layers.1.mlp.up"), Stash::kRecompute);
  EXPECT_EQ(StashOf(program, plan, "layers.1.attention.q"), Stash::kKeep);
}

TEST(PlanTest, EquallyLongPatternsOnOneSiteAreAnError) {
  const Program program = *BuildProgram(Small(), FullMode());
  const auto plan = PinnedPlan(
      program,
      {{"layers.0.mlp*", Stash::kKeep}, {"layers.*.mlp.", Stash::kKeep}, {"*", Stash::kKeep}});
  EXPECT_THAT(plan.status().message(), HasSubstr("matches no site"));
  const auto tie =
      PinnedPlan(program, {{"*.mlp.gate", Stash::kKeep}, {"layers.0.*", Stash::kRecompute}});
  EXPECT_THAT(tie.status().message(), HasSubstr("both match layers.0.mlp.gate"));
}

// The gate's slope can be coded; what other ops read, and what up is needed for, cannot.
TEST(PlanTest, ATwoBitCodeServesWhatOneActivationReads) {
  for (const TrainingMode& mode : {FullMode(), LoraMode()}) {
    const Program program = *BuildProgram(Small(), mode);
    const Plan plan = *PinnedPlan(program, {{"*", Stash::kTwoBit}});
    for (const Site& site : SitesOf(program)) {
      const bool gate = site.name.ends_with(".mlp.gate");
      EXPECT_EQ(site.Serves(Stash::kTwoBit), gate) << site.name;
      EXPECT_EQ(StashOf(program, plan, site.name), gate ? Stash::kTwoBit : Stash::kKeep)
          << site.name;
    }
  }
}

// Of an encoder, what its MLP's activation reads; no codes stand for the tanh of its pooler.
TEST(PlanTest, ATwoBitCodeServesAnEncodersMlpAlone) {
  const Program program = *BuildProgram(EncoderShape("bert", {2, 64, 4, 4, 96, 50}), FullMode());
  const auto names = SiteNames(program);
  EXPECT_EQ(std::ranges::count_if(names, [](const auto& n) { return n.ends_with("mlp.up"); }), 2);
  for (const Site& site : SitesOf(program))
    EXPECT_EQ(site.Serves(Stash::kTwoBit), site.name.ends_with(".mlp.up")) << site.name;
  const BlockType& head = program.types[static_cast<size_t>(program.blocks.back().type)];
  const auto tanh = std::ranges::find(head.ops, OpCode::kActivation, &Op::code);
  ASSERT_NE(tanh, head.ops.end());
  EXPECT_FALSE(TakesForm(*tanh, 0, Stash::kTwoBit));
}

// Rows can be sampled of what nobody needs but linears for their weights: not of what attention
// needs as well, nor where the linear is frozen.
TEST(PlanTest, ASampleServesWhatTrainedLinearsAloneRead) {
  const auto served = [](const TrainingMode& mode) {
    std::vector<std::string> names;
    for (const Site& site : SitesOf(*BuildProgram(Small(), mode))) {
      if (site.block == 1 && site.Serves(Stash::kSampled)) names.push_back(site.name);
    }
    return names;
  };
  const std::vector<std::string> all = {"layers.0.norm1.out", "layers.0.norm2.out",
                                        "layers.0.mlp.act"};
  EXPECT_EQ(served(FullMode()), all);
  EXPECT_EQ(served(LoraMode()), all);
  EXPECT_EQ(served(LoraMode({"q_proj"})), std::vector<std::string>{"layers.0.norm1.out"});
}

// WTA-14: of T rows k are left, each with its place and its weight.
TEST(PlanTest, Wta14ASampleTakesTheBytesOfItsRows) {
  const Program program = *BuildProgram(Small(), FullMode());
  const LowerOptions options = {.key = {.tokens = 65, .documents = 1, .longest_document = 65}};
  const auto stashed = [&](const Plan& plan) {
    int64_t bytes = 0;
    const Tape tape = *Lower(program, plan, options);
    for (const Slot& slot : tape.slots) bytes += slot.region == Region::kStash ? slot.bytes : 0;
    return bytes;
  };
  const Plan sampled = *PinnedPlan(program, {{"layers.1.mlp.act", Stash::kSampled}});
  EXPECT_EQ(stashed(RecomputePlan(program, 0)) - stashed(sampled), 65 * 96 * 4 - 20 * (96 * 4 + 8));
}

TEST(PlanTest, WhatIsSetOfASampleIsChecked) {
  const SiteStash wta = *SampledBy(0.125, "wta");
  EXPECT_EQ(wta.share, 1250);
  EXPECT_EQ(wta.estimator, Estimator::kWta);
  EXPECT_EQ(*SampledBy(std::nullopt, ""), SiteStash(Stash::kSampled));
  EXPECT_EQ(SiteStash(Stash::kSampled).rho(), 0.3);
  for (const double rho : {-0.1, 0.0, 1.1, 0.00001, 0.12345})
    EXPECT_THAT(SampledBy(rho, "").status().message(), HasSubstr("rho must be from 0.0001 to 1"));
  EXPECT_THAT(SampledBy(0.3, "crs").status().message(), HasSubstr("pps or wta, not \"crs\""));
}

// A pass of a loop has some rows, a sample is of all: what the loop reads is run again.
TEST(PlanTest, NoSampleIsTakenInALoop) {
  const Program program = *BuildProgram(Small(), FullMode());
  const LowerOptions options = {.key = {.tokens = 65, .documents = 1, .longest_document = 65}};
  const auto samples = [&](const std::map<std::string, SiteStash>& patterns) {
    const Tape tape = *Lower(program, *PinnedPlan(program, patterns), options);
    return std::count_if(tape.instructions.begin(), tape.instructions.end(),
                         [](const Instruction& line) {
                           return line.op != nullptr && line.op->code == OpCode::kSampleRows;
                         });
  };
  EXPECT_EQ(samples({{"*.norm2.out", Stash::kSampled}}), 2);
  EXPECT_EQ(samples({{"*.norm2.out", Stash::kSampled},
                     {"*.mlp.gate", {Stash::kChunk, 16}},
                     {"*.mlp.up", {Stash::kChunk, 16}},
                     {"*.mlp.act", {Stash::kChunk, 16}}}),
            0);
}

TEST(PlanTest, AStashThatCannotServeASiteNamesThoseThatCan) {
  const Program program = *BuildProgram(Small(), FullMode());
  EXPECT_EQ(PinnedPlan(program, {{"layers.0.mlp.up", Stash::kTwoBit}}).status().message(),
            "memory.stash: two_bit cannot keep layers.0.mlp.up; keep, recompute, offload, int8, "
            "int4, chunk can");
  EXPECT_EQ(PinnedPlan(program, {{"layers.0.norm1.r", Stash::kInt8}}).status().message(),
            "memory.stash: int8 cannot keep layers.0.norm1.r; keep, recompute can");
  EXPECT_EQ(PinnedPlan(program, {{"layers.*.mlp.up", Stash::kTwoBit}}).status().message(),
            "memory.stash: two_bit can keep none of the sites that 'layers.*.mlp.up' decides; "
            "of a layer it can keep layers.0.mlp.gate");
}

// The product is run again from gate itself, so gate is run again as well and no code is held.
TEST(PlanTest, NoCodeIsHeldOfAValueThatIsThereAnyway) {
  const Program program = *BuildProgram(Small(), FullMode());
  const Graph graph = *GraphOf(program);
  const auto formed = [&](const std::map<std::string, SiteStash>& patterns) {
    const Plan plan = *PinnedPlan(program, patterns);
    std::vector<SiteStash> stashes = StashesOf(program, graph, plan);
    const Loops loops = LoopsOf(graph, stashes);
    const Demand demand = DemandOf(graph, stashes, loops);
    return std::count(demand.formed.begin(), demand.formed.end(), true);
  };
  EXPECT_EQ(formed({{"layers.*.mlp.gate", Stash::kTwoBit}}), 2);
  EXPECT_EQ(
      formed({{"layers.*.mlp.gate", Stash::kTwoBit}, {"layers.*.mlp.act", Stash::kRecompute}}), 0);
}

// What a stash cannot serve is kept, and counts so.
TEST(PlanTest, SharesCountWhatIsKeptForWantOfService) {
  const Program program = *BuildProgram(Small(), FullMode());
  const std::vector<Site> sites = SitesOf(program);
  const BlockType& type = program.type_of(1);
  const Recipe all(type.values.size(), Stash::kTwoBit);
  const auto bytes = SiteBytes(program, sites, 1, all);
  EXPECT_EQ(bytes.at(Stash::kTwoBit), 96 * 4);
  EXPECT_GT(bytes.at(Stash::kKeep), 96 * 4);
}

// Trying every split at every star would not end.
TEST(PlanTest, StarsDoNotMultiply) {
  const Program program = *BuildProgram(Llama70B(), FullMode());
  std::map<std::string, SiteStash> patterns;
  for (int i = 0; i < 20; ++i)
    patterns[std::string(60, '*') + "a*e*a*e*i*o" + std::string(static_cast<size_t>(i), '*') +
             "!"] = Stash::kRecompute;
  EXPECT_THAT(PinnedPlan(program, patterns).status().message(), HasSubstr("matches no site"));
  const Plan plan = *PinnedPlan(program, {{"*****.7.**mlp.*t", Stash::kRecompute}});
  EXPECT_EQ(StashOf(program, plan, "layers.7.mlp.gate"), Stash::kKeep);
  EXPECT_EQ(StashOf(program, plan, "layers.7.mlp.act"), Stash::kRecompute);
}

TEST(PlanTest, PlansComeBackByTheNamesOfTheirSites) {
  std::mt19937 random(1);
  for (const std::string& family : FamilyNames()) {
    const Program program =
        *BuildProgram(FamilyShape(family, {4, 64, 4, 2, 96, 50}), LoraMode({"all-linear"}));
    const Plan plan = RandomPlan(program, 2, random);
    const Plan back = *PlanOf(program, NamedPlanOf(program, plan));
    const LowerOptions options{
        .key = {.tokens = 64, .documents = 2, .longest_document = 40, .trained = 64}};
    EXPECT_EQ(Lower(program, back, options)->arena_bytes,
              Lower(program, plan, options)->arena_bytes);
    for (const Site& site : SitesOf(program)) {
      if (site.companion) continue;
      EXPECT_EQ(StashOf(program, back, site.name), StashOf(program, plan, site.name)) << site.name;
    }
  }
}

// By position, a stash would be taken for another value's.
TEST(PlanTest, APlanOfOtherSitesIsRefusedByName) {
  const Program program = *BuildProgram(Small(), FullMode());
  NamedPlan plan = NamedPlanOf(program, RecomputePlan(program, 1));
  plan.recipes[0].stashes["mlp.gate_of_another_version"] = Stash::kKeep;
  EXPECT_THAT(PlanOf(program, plan).status().message(),
              HasSubstr("the recipe of layer 0 names mlp.gate_of_another_version"));
  plan = NamedPlanOf(program, RecomputePlan(program, 1));
  plan.recipes[1].stashes.erase("mlp.up");
  EXPECT_THAT(PlanOf(program, plan).status().message(),
              HasSubstr("the recipe of layer 1 does not say how mlp.up is kept"));
  plan.layer_recipe.pop_back();
  EXPECT_THAT(PlanOf(program, plan).status().message(), HasSubstr("is for 1 layers"));
}

TEST(PlanTest, APatternThatMatchesNothingNamesTheSitesThereAre) {
  const Program program = *BuildProgram(Small(), FullMode());
  const auto plan = PinnedPlan(program, {{"layers.*.ffn.*", Stash::kRecompute}});
  EXPECT_THAT(plan.status().message(), HasSubstr("'layers.*.ffn.*' matches no site"));
  EXPECT_THAT(plan.status().message(), HasSubstr("mlp.gate"));
}

// The first k layers are run again: the block that unfolds then meets the lowest stack.
TEST(PlanTest, RecomputeTakesTheFirstLayers) {
  const Program program = *BuildProgram(Small(), FullMode());
  const Plan plan = RecomputePlan(program, 1);
  EXPECT_EQ(plan.name, "recompute 1 of 2");
  EXPECT_EQ(StashOf(program, plan, "layers.0.mlp.act"), Stash::kRecompute);
  EXPECT_EQ(StashOf(program, plan, "layers.1.mlp.act"), Stash::kKeep);
}

// A whole block run again keeps its input alone, and its last linear, whose result nobody reads, is
// not run.
TEST(PlanTest, WholeBlockRecomputeKeepsTheInputAndSkipsTheLastLinear) {
  const Program program = *BuildProgram(Small(), FullMode());
  const Graph graph = *GraphOf(program);
  std::vector<SiteStash> stashes = StashesOf(program, graph, RecomputePlan(program, 2));
  const Loops loops = LoopsOf(graph, stashes);
  const Demand demand = DemandOf(graph, stashes, loops);
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].block != 1) continue;
    EXPECT_EQ(demand.kept[v], graph.values[v].value->site == "embedding")
        << graph.values[v].value->site;
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.block != 1) continue;
    const bool last = node.op->name == "mlp.down_proj" || node.op->name == "output";
    EXPECT_EQ(demand.rerun[n], !last) << node.op->name;
  }
}

// r and lse follow their op; za follows the linears that read it, which gate and up share.
TEST(PlanTest, CompanionsAreKeptUnlessTheirOpRunsAgain) {
  const Program program = *BuildProgram(Small(), LoraMode());
  const Graph graph = *GraphOf(program);
  const auto value = [&](const std::string& site) {
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].block == 2 && graph.values[v].value->site == site) return v;
    }
    ADD_FAILURE() << site;
    return size_t{0};
  };
  std::vector<SiteStash> stashes(graph.values.size());
  stashes[value("attention.out")] = Stash::kRecompute;
  stashes[value("mlp.gate")] = Stash::kRecompute;
  const Loops loops = LoopsOf(graph, stashes);
  const Demand demand = DemandOf(graph, stashes, loops);
  EXPECT_FALSE(demand.kept[value("attention.lse")]);
  EXPECT_FALSE(demand.kept[value("mlp.gate.za")]);
  EXPECT_TRUE(demand.kept[value("attention.q_proj.za")]);
  EXPECT_TRUE(demand.kept[value("norm1.r")]);
}

}  // namespace
}  // namespace snug::program
