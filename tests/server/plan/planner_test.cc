#include "server/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "server/job/check_job.h"
#include "server/job/check_spec.h"
#include "server/plan/plan_proto.h"
#include "tests/server/plan/toy_config.h"
#include "worker/link/convert.h"
#include "worker/program/lower.h"
#include "worker/program/model_config.h"
#include "worker/program/planning/named_plan.h"

namespace snug::server {
namespace {

class PlannerTest : public testing::Test {
 protected:
  PlannerTest() {
    spec_.set_method(v1::JobSpec::METHOD_LORA);
    spec_.mutable_training()->set_packing(false);
    FillDefaults(spec_, 128);
    program_ = program::BuildProgram(ToyConfig(), ModeOf(spec_)).value();
  }
  std::vector<v1::Plan> Plans(const RowLengths& lengths) {
    return PlansFor(program_, spec_, lengths, {.threads = 2, .context_bytes = 1000}).value();
  }
  // As the worker reads what the daemon stored.
  absl::StatusOr<program::Tape> LoweredByTheWorker(const v1::Plan& stored, bool cpu = true) {
    const absl::StatusOr<program::NamedPlan> named = link::PlanFrom(stored);
    if (!named.ok()) return named.status();
    const program::Program program =
        program::BuildProgram(program_.config, link::ModeFrom(spec_)).value();
    const absl::StatusOr<program::Plan> plan = program::PlanOf(program, *named);
    if (!plan.ok()) return plan.status();
    return program::Lower(program, *plan,
                          {.key = link::KeyFrom(stored.key()),
                           .machine = {.threads = stored.threads(), .cpu = cpu},
                           .training = true,
                           .head_rows = stored.head_rows()});
  }

  v1::JobSpec spec_;
  program::Program program_;
};

// Beside a GPU plans offload within what the node has, where the job leaves it open, or within its
// budget; beside a CPU, whose memory it is, they offload where the job asks for it.
TEST_F(PlannerTest, WhatTheNodeCanSpareIsForAGpusPlans) {
  spec_.mutable_training()->set_per_device_train_batch_size(64);  // More than a page of a GPU.
  const auto most_on_host = [&](bool gpu, int64_t host_bytes, const char* budget) {
    spec_.mutable_memory()->set_host_budget(budget);
    const PlanMachine machine = {
        .threads = 2, .gpu = gpu, .context_bytes = 1000, .host_bytes = host_bytes};
    int64_t most = 0;
    const std::vector<v1::Plan> plans = *PlansFor(program_, spec_, {}, machine);
    for (const v1::Plan& plan : plans) most = std::max(most, plan.host_bytes());
    return most;
  };
  const int64_t all = most_on_host(true, int64_t{1} << 40, "auto");
  EXPECT_GT(all, 0);
  EXPECT_EQ(most_on_host(true, int64_t{1} << 40, ""), all);
  EXPECT_EQ(most_on_host(true, 0, "auto"), 0);
  const int64_t some = most_on_host(true, all - 1, "auto");
  EXPECT_LT(some, all);
  EXPECT_EQ(most_on_host(true, int64_t{1} << 40, absl::StrCat(all - 1).c_str()), some);
  EXPECT_EQ(most_on_host(false, 0, "auto"), 0);
  EXPECT_EQ(most_on_host(false, 0, "1TiB"), all);
}

TEST_F(PlannerTest, FastestFirstFromKeepWithEveryRecomputePlanAndTheMixesBetween) {
  const std::vector<v1::Plan> plans = Plans({});
  EXPECT_EQ(plans.front().name(), "keep");
  EXPECT_EQ(plans.front().relative_work(), 1.0);
  int recompute_plans = 0, mixes = 0;
  for (size_t i = 1; i < plans.size(); ++i) {
    EXPECT_GE(plans[i].relative_work(), plans[i - 1].relative_work());
    EXPECT_LT(plans[i].peak_bytes(), plans[0].peak_bytes());
    const bool of_all = absl::EndsWith(plans[i].name(), " of 3");
    EXPECT_TRUE(of_all || absl::EndsWith(plans[i].name(), " %")) << plans[i].name();
    if (absl::StrContains(plans[i].name(), "chunk")) continue;
    (of_all ? recompute_plans : mixes) += 1;
  }
  EXPECT_EQ(recompute_plans, 3);
  EXPECT_GT(mixes, 10);
}

// What the job may take decides which mixes are made: the fastest within it is among them.
TEST_F(PlannerTest, ABudgetOfTheJobsOwnHasItsPlan) {
  const std::vector<v1::Plan> free = Plans({});
  for (size_t i = 1; i < free.size(); ++i) {
    const int64_t budget = (free[i - 1].peak_bytes() + free[i].peak_bytes()) / 2;
    spec_.mutable_memory()->set_budget(absl::StrCat(budget, "B"));
    const std::vector<v1::Plan> plans = Plans({});
    const int before = FirstThatFits(free, budget), now = FirstThatFits(plans, budget);
    ASSERT_EQ(before >= 0, now >= 0);
    if (now < 0) continue;
    EXPECT_LE(plans[static_cast<size_t>(now)].relative_work(),
              free[static_cast<size_t>(before)].relative_work());
  }
}

// Of rows that are made of sources the key has both; of such that nobody has seen both are full.
TEST_F(PlannerTest, SourcesHaveALengthOfTheirOwn) {
  program_ = program::BuildProgram(ToyT5(), ModeOf(spec_)).value();
  spec_.mutable_training()->set_per_device_train_batch_size(2);
  const RowLengths lengths = {.train = {5, 9, 7}, .train_sources = {40, 2, 30}};
  const v1::Plan known = Plans(lengths).front(), unknown = Plans({}).front();
  EXPECT_EQ(known.key().tokens(), 16);
  EXPECT_EQ(known.key().longest_document(), 9);
  EXPECT_EQ(known.key().source_tokens(), 70);
  EXPECT_EQ(known.key().longest_source(), 40);
  EXPECT_EQ(unknown.key().tokens(), 256);
  EXPECT_EQ(unknown.key().source_tokens(), 256);
  EXPECT_EQ(unknown.key().longest_source(), 128);
  EXPECT_EQ(LoweredByTheWorker(known)->arena_bytes, known.arena_bytes());
  EXPECT_GT(Plans({.train = {5, 9, 7}, .train_sources = {40, 2, 31}}).front().peak_bytes(),
            known.peak_bytes());
}

// Prompts that nobody has tokenised yet count as long as they may be; later as long as they are.
// Their answers need room for the keys of prompt and answer.
TEST_F(PlannerTest, PromptsArePartOfThePeak) {
  spec_.mutable_training()->set_per_device_train_batch_size(1);
  const RowLengths none = {.train = {2, 2}, .eval = {2}};
  const int64_t before = Plans(none).front().peak_bytes();
  spec_.set_eval_split(0.5);
  spec_.mutable_training()->add_sample_prompts("one");
  spec_.mutable_training()->set_sample_max_new_tokens(28);
  const RowLengths known = {.train = {2, 2}, .eval = {2}, .longest_prompt = 10};
  const int64_t short_prompt = Plans(known).front().peak_bytes();
  const int64_t unknown = Plans(none).front().peak_bytes();
  EXPECT_GT(short_prompt, before);
  EXPECT_GT(unknown, short_prompt);
  RowLengths longest = known;
  longest.longest_prompt = 128 - 28;
  EXPECT_EQ(Plans(longest).front().peak_bytes(), unknown);
}

TEST_F(PlannerTest, PeakIsTheSumOfItsComponents) {
  for (const v1::Plan& plan : Plans({})) {
    const v1::MemoryComponents& m = plan.memory();
    EXPECT_EQ(plan.peak_bytes(), m.context_bytes() + m.weights_bytes() + m.adapter_bytes() +
                                     m.gradients_bytes() + m.optimizer_bytes() + m.inputs_bytes() +
                                     m.data_bytes() + m.stash_bytes() + m.scratch_bytes() +
                                     m.workspace_bytes());
    EXPECT_EQ(m.context_bytes(), 1000);
  }
}

// Nothing known: 8 rows of 128 tokens. The dataset's longest 8 rows have 10 tokens each.
TEST_F(PlannerTest, LengthsOfTheDatasetDecideTheKey) {
  EXPECT_EQ(Plans({})[0].key().tokens(), 8 * 128);
  RowLengths lengths;
  lengths.train.Add(10, 20);
  const std::vector<v1::Plan> known = Plans(lengths);
  EXPECT_EQ(known[0].key().tokens(), 80);
  EXPECT_LT(known[0].peak_bytes(), Plans({})[0].peak_bytes());
}

// A job may be refused for the number of its rows alone.
TEST_F(PlannerTest, ManyRowsArePartOfThePeak) {
  RowLengths few, many;
  few.train.Add(1, 100);
  many.train.Add(1, 100'000'000);
  const v1::Plan small = Plans(few)[0], large = Plans(many)[0];
  EXPECT_EQ(large.memory().data_bytes() - small.memory().data_bytes(), 4 * (100'000'000 - 100));
  EXPECT_EQ(large.peak_bytes() - small.peak_bytes(), 4 * (100'000'000 - 100));
}

TEST_F(PlannerTest, StoredPlanIsTheSamePlan) {
  for (const v1::Plan& plan : Plans({})) {
    EXPECT_EQ(LoweredByTheWorker(plan).value().arena_bytes, plan.arena_bytes());
  }
}

// Also what is set of a kind, which decides the bytes.
TEST_F(PlannerTest, StoredPlanHasTheSettingsOfItsKinds) {
  v1::MemorySpec& memory = *spec_.mutable_memory();
  memory.set_fidelity(v1::FIDELITY_UNBIASED);
  (*memory.mutable_stash())["*"] = v1::STASH_KIND_SAMPLED;
  const int64_t usual = Plans({})[0].arena_bytes();
  (*memory.mutable_stash_options())["*"].set_rho(0.1);
  (*memory.mutable_stash_options())["*"].set_estimator("wta");
  const v1::Plan plan = Plans({})[0];
  EXPECT_LT(plan.arena_bytes(), usual);
  EXPECT_EQ(LoweredByTheWorker(plan).value().arena_bytes, plan.arena_bytes());
  EXPECT_EQ(plan.fidelity(), v1::FIDELITY_UNBIASED);
  ASSERT_EQ(plan.kinds_size(), 2);
  EXPECT_EQ(plan.kinds(1).kind(), "sampled");
  for (const v1::SitesOfKind& kind : plan.recipes(0).kinds()) {
    if (kind.kind() != "sampled") continue;
    EXPECT_EQ(kind.options().rho(), 0.1);
    EXPECT_EQ(kind.options().estimator(), "wta");
  }
}

TEST_F(PlannerTest, StoredPlanSaysThatLayersAreRecoveredAhead) {
  program::ModelConfig config = ToyConfig();
  config.reversible = true;
  program_ = program::BuildProgram(config, ModeOf(spec_)).value();
  v1::MemorySpec& memory = *spec_.mutable_memory();
  (*memory.mutable_stash())["*"] = v1::STASH_KIND_REVERSIBLE;
  const auto ahead = [](const v1::Plan& plan) {
    int kinds = 0;
    for (const v1::Recipe& recipe : plan.recipes())
      for (const v1::SitesOfKind& kind : recipe.kinds()) kinds += kind.options().ahead() ? 1 : 0;
    return kinds;
  };
  const auto runs_ahead = [&](const v1::Plan& plan) {
    const program::Tape tape = LoweredByTheWorker(plan).value();
    EXPECT_EQ(tape.arena_bytes, plan.arena_bytes());
    return std::any_of(
        tape.instructions.begin(), tape.instructions.end(),
        [](const program::Instruction& line) { return line.stream == program::kRecoverStream; });
  };
  const v1::Plan usual = Plans({})[0];
  EXPECT_EQ(ahead(usual), 0);
  EXPECT_FALSE(runs_ahead(usual));
  (*memory.mutable_stash_options())["*"].set_ahead(true);
  const v1::Plan plan = Plans({})[0];
  EXPECT_GT(ahead(plan), 0);
  EXPECT_TRUE(runs_ahead(plan));
  EXPECT_GE(plan.arena_bytes(), usual.arena_bytes());
}

// Where noise of mean zero is allowed, samples are offered, and nothing that is biased.
TEST_F(PlannerTest, UnbiasedPlansAreOfferedWhereTheJobAllowsThem) {
  spec_.set_method(v1::JobSpec::METHOD_FULL);
  spec_.clear_lora();
  program_ = program::BuildProgram(program_.config, ModeOf(spec_)).value();
  spec_.mutable_memory()->set_fidelity(v1::FIDELITY_UNBIASED);
  int sampled = 0;
  for (const v1::Plan& plan : Plans({})) {
    EXPECT_NE(plan.fidelity(), v1::FIDELITY_APPROXIMATE) << plan.name();
    if (plan.fidelity() != v1::FIDELITY_UNBIASED) continue;
    ++sampled;
    EXPECT_TRUE(absl::StrContains(plan.name(), "sampled ")) << plan.name();
  }
  EXPECT_GT(sampled, 0);
}

TEST_F(PlannerTest, PlanOfAnotherModelIsRefused) {
  v1::Plan plan = Plans({})[0];
  plan.mutable_block_recipe()->RemoveLast();
  EXPECT_FALSE(LoweredByTheWorker(plan).ok());
  plan.add_block_recipe(9);
  EXPECT_FALSE(LoweredByTheWorker(plan).ok());
  plan.set_block_recipe(2, 0);
  EXPECT_TRUE(LoweredByTheWorker(plan).ok());
  plan.mutable_recipes(0)->mutable_kinds(0)->set_sites(0, "mlp.of_another_version");
  EXPECT_TRUE(absl::StrContains(LoweredByTheWorker(plan).status().message(), "does not say how"));
}

// All that `snug plan` says of a plan: its sites' shares by kind, and what a step takes.
TEST_F(PlannerTest, APlanSaysItsTimeAndItsKinds) {
  spec_.mutable_training()->set_gradient_accumulation_steps(3);
  const PlanMachine machine = {
      .rates = {.f32 = program::Rates::Of(1e9, 1e9), .bf16 = program::Rates::Of(1e12, 1e9)}};
  const std::vector<v1::Plan> plans = PlansFor(program_, spec_, {}, machine).value();
  double slowest = 0.0;
  for (const v1::Plan& plan : plans) {
    EXPECT_GE(plan.step_seconds(), slowest);
    slowest = plan.step_seconds();
    EXPECT_NEAR(plan.tokens_per_second() * plan.step_seconds(), 3 * 8 * 128, 1e-6);
    EXPECT_EQ(plan.fidelity(), v1::FIDELITY_EXACT);
    double sum = 0.0;
    for (const v1::KindShare& kind : plan.kinds()) sum += kind.share();
    EXPECT_NEAR(sum, 1.0, 1e-12) << plan.name();
  }
  ASSERT_EQ(plans.front().kinds_size(), 1);
  EXPECT_EQ(plans.front().kinds(0).kind(), "keep");
  const auto all_again = std::find_if(plans.begin(), plans.end(), [](const v1::Plan& plan) {
    return plan.name() == "recompute 3 of 3";
  });
  ASSERT_NE(all_again, plans.end());
  ASSERT_EQ(all_again->kinds_size(), 1);
  EXPECT_EQ(all_again->kinds(0).kind(), "recompute");
  // A machine of another speed: in fp32, whatever it does in bf16.
  PlanMachine faster = machine;
  faster.rates.f32 = program::Rates::Of(1e10, 1e10);
  const double ten_times = PlansFor(program_, spec_, {}, faster)->front().step_seconds();
  EXPECT_NEAR(plans.front().step_seconds() / ten_times, 10.0, 1e-9);
  faster.rates.bf16 = program::Rates::Of(1e15, 1e10);
  EXPECT_EQ(PlansFor(program_, spec_, {}, faster)->front().step_seconds(), ten_times);
}

// For queued jobs few plans are held; what is chosen for a device is the same.
TEST_F(PlannerTest, TheFastestWithinALimitIsAmongTheFewThatAreHeld) {
  const std::vector<v1::Plan> all = Plans({});
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const int64_t limit = (all[i].peak_bytes() + all[i + 1].peak_bytes()) / 2;
    const PlanMachine machine = {.threads = 2, .context_bytes = 1000};
    program::PlanList list{.limits = {limit}};
    const std::vector<v1::Plan> shown = PlansFor(program_, spec_, {}, machine, list).value();
    list.recompute_plans = false;
    list.most_mixes = 4;
    const std::vector<v1::Plan> held = PlansFor(program_, spec_, {}, machine, list).value();
    EXPECT_LE(held.size(), 6u + 8u);  // Beside the mixes: two ways of loops, of 4 shares at most.
    const int of_shown = FirstThatFits(shown, limit), of_held = FirstThatFits(held, limit);
    ASSERT_EQ(of_shown >= 0, of_held >= 0);
    if (of_held < 0) continue;
    const v1::Plan& a = shown[static_cast<size_t>(of_shown)];
    const v1::Plan& b = held[static_cast<size_t>(of_held)];
    EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString()) << a.name() << ", " << b.name();
  }
}

TEST_F(PlannerTest, TheHostHasALimitOfItsOwn) {
  std::vector<v1::Plan> plans = Plans({});
  plans[0].set_host_bytes(1000);
  EXPECT_EQ(FirstThatFits(plans, INT64_MAX, 1000), 0);
  EXPECT_EQ(FirstThatFits(plans, INT64_MAX, 999), 1);
  for (v1::Plan& plan : plans) plan.set_host_bytes(2000 + plan.peak_bytes());
  // Of those that fit the device, the one that asks the least of the host is named.
  EXPECT_EQ(HostRefusalOf({plans[0], plans[1]}, plans[0].peak_bytes(), 4096),
            absl::StrCat("the job needs ", FormatBytes(plans[1].host_bytes()), " (",
                         plans[1].host_bytes(), " bytes) of the host's memory under its plan (",
                         plans[1].name(),
                         "); it has 4 KiB (4096 bytes): offload less, or take more host memory"));
}

// Below every exact plan there are others, for who allows them.
TEST_F(PlannerTest, FormsAreAddedWhereTheJobAllowsThem) {
  program::ModelConfig config = program_.config;
  config.layers = 12;  // What they are handed is more than what one of them needs besides.
  program_ = program::BuildProgram(config, ModeOf(spec_)).value();
  RowLengths lengths;
  lengths.train.Add(128, 64);
  const auto smallest = [&] {
    const std::vector<v1::Plan> plans = Plans(lengths);
    return plans[static_cast<size_t>(SmallestOf(plans))];
  };
  const v1::Plan exact = smallest();
  EXPECT_EQ(exact.fidelity(), v1::FIDELITY_EXACT);
  EXPECT_EQ(exact.host_bytes(), 0);

  spec_.mutable_memory()->set_fidelity(v1::FIDELITY_APPROXIMATE);
  const v1::Plan coded = smallest();
  EXPECT_EQ(coded.fidelity(), v1::FIDELITY_APPROXIMATE);
  EXPECT_LT(coded.peak_bytes(), exact.peak_bytes());
  EXPECT_EQ(coded.host_bytes(), 0);

  spec_.mutable_memory()->set_fidelity(v1::FIDELITY_EXACT);
  spec_.mutable_memory()->set_host_budget("64MiB");
  const v1::Plan offloaded = smallest();
  EXPECT_EQ(offloaded.fidelity(), v1::FIDELITY_EXACT);
  EXPECT_LT(offloaded.peak_bytes(), exact.peak_bytes());
  EXPECT_GT(offloaded.host_bytes(), 0);
  spec_.mutable_memory()->set_host_budget(absl::StrCat(offloaded.host_bytes() - 1));
  for (const v1::Plan& plan : Plans(lengths))
    EXPECT_LT(plan.host_bytes(), offloaded.host_bytes()) << plan.name();
}

// A hand that pins more than it grants.
TEST_F(PlannerTest, OffloadBeyondTheHostsBudgetIsRefusedByField) {
  (*spec_.mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_OFFLOAD;
  spec_.mutable_memory()->set_host_budget("1KiB");
  const auto plans = PlansFor(program_, spec_, {}, {.threads = 2, .context_bytes = 1000});
  EXPECT_TRUE(absl::StrContains(plans.status().message(), "memory.host_budget"));
  EXPECT_TRUE(absl::StrContains(plans.status().message(), "the budget is 1 KiB"));
}

TEST_F(PlannerTest, PinnedPlanIsTheOnlyOne) {
  (*spec_.mutable_memory()->mutable_stash())["layers.*"] = v1::STASH_KIND_RECOMPUTE;
  (*spec_.mutable_memory()->mutable_stash())["layers.1.*"] = v1::STASH_KIND_KEEP;
  const std::vector<v1::Plan> plans = Plans({});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].name(), "pinned");
  EXPECT_NE(plans[0].block_recipe(0), plans[0].block_recipe(1));
}

// Named by its path. What else a job pins is not the head's.
TEST_F(PlannerTest, RowsOfTheHeadArePinned) {
  program::ModelConfig config = ToyConfig();
  config.vocabulary = 50000;
  program_ = program::BuildProgram(config, ModeOf(spec_)).value();
  v1::MemorySpec& memory = *spec_.mutable_memory();
  (*memory.mutable_stash())["*"] = v1::STASH_KIND_CHUNK;
  (*memory.mutable_stash_options())["*"].set_rows(16);
  const v1::Plan usual = Plans({}).front();
  (*memory.mutable_stash())["lm_head"] = v1::STASH_KIND_CHUNK;
  (*memory.mutable_stash_options())["lm_head"].set_rows(8);
  const v1::Plan few = Plans({}).front();
  EXPECT_EQ(usual.head_rows(), program::kHeadRowsOfCpu);
  EXPECT_EQ(few.head_rows(), 8);
  EXPECT_LT(few.arena_bytes(), usual.arena_bytes() / 2);
  for (const v1::Plan& plan : {usual, few})
    EXPECT_EQ(LoweredByTheWorker(plan).value().arena_bytes, plan.arena_bytes());
}

// As many as its node has measured. What does not fit with them has the most with which it does;
// and the smallest plan is there, so that a job can run beside others.
TEST_F(PlannerTest, TheHeadOfAGpuHasFewerRowsWhereOnlyThatFits) {
  program::ModelConfig config = ToyConfig();
  config.vocabulary = 50000;
  program_ = program::BuildProgram(config, ModeOf(spec_)).value();
  spec_.mutable_training()->set_per_device_train_batch_size(32);  // 4,096 tokens.
  PlanMachine machine = {.threads = 2, .gpu = true, .context_bytes = 1000};
  const auto plans_within = [&](int64_t limit) {
    return PlansFor(program_, spec_, {}, machine, {.limits = {limit}}).value();
  };
  const auto smallest_of = [&](int32_t rows) {
    (*spec_.mutable_memory()->mutable_stash())["lm_head"] = v1::STASH_KIND_CHUNK;
    (*spec_.mutable_memory()->mutable_stash_options())["lm_head"].set_rows(rows);
    const std::vector<v1::Plan> plans = plans_within(INT64_MAX);
    spec_.mutable_memory()->clear_stash();
    spec_.mutable_memory()->clear_stash_options();
    return plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
  };
  const std::vector<v1::Plan> plans = plans_within(INT64_MAX);
  EXPECT_EQ(plans.front().head_rows(), 1024);
  const v1::Plan& least = plans[static_cast<size_t>(SmallestOf(plans))];
  EXPECT_EQ(least.head_rows(), 256);
  EXPECT_TRUE(absl::EndsWith(least.name(), ", 256 rows of the head")) << least.name();
  EXPECT_EQ(least.peak_bytes(), smallest_of(256));
  EXPECT_EQ(SmallestPlans(program_, spec_, {}, machine)->front().head_rows(), 256);
  for (const auto& [rows, limit] : {std::pair<int32_t, int64_t>{1024, smallest_of(1024)},
                                    {512, smallest_of(1024) - 1},
                                    {512, smallest_of(512)},
                                    {256, smallest_of(512) - 1},
                                    {256, smallest_of(256)}}) {
    const std::vector<v1::Plan> within = plans_within(limit);
    const int chosen = FirstThatFits(within, limit);
    ASSERT_GE(chosen, 0) << limit;
    const v1::Plan& plan = within[static_cast<size_t>(chosen)];
    EXPECT_EQ(plan.head_rows(), rows) << limit;
    const int64_t lowered = LoweredByTheWorker(plan, /*cpu=*/false).value().arena_bytes;
    EXPECT_GE(plan.arena_bytes(), lowered);
    EXPECT_LT(plan.arena_bytes(), lowered + 2 * program::kGpuPageBytes);
  }
  EXPECT_EQ(FirstThatFits(plans_within(least.peak_bytes() - 1), least.peak_bytes() - 1), -1);
  machine.rates.head_rows = 2048;
  EXPECT_EQ(plans_within(INT64_MAX).front().head_rows(), 2048);
  machine.rates.head_rows = 256;
  for (const v1::Plan& plan : plans_within(INT64_MAX)) EXPECT_EQ(plan.head_rows(), 256);
}

// Beside what a job pins there is no other plan, but where it does not fit.
TEST_F(PlannerTest, APinnedPlanOfAGpuHasFewerRowsOfTheHeadWhereItDoesNotFit) {
  program::ModelConfig config = ToyConfig();
  config.vocabulary = 50000;
  program_ = program::BuildProgram(config, ModeOf(spec_)).value();
  (*spec_.mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_RECOMPUTE;
  const PlanMachine machine = {.threads = 2, .gpu = true, .context_bytes = 1000};
  const auto plans = PlansFor(program_, spec_, {}, machine).value();
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].head_rows(), 1024);
  const int64_t limit = plans[0].peak_bytes() - 1;
  const auto within = PlansFor(program_, spec_, {}, machine, {.limits = {limit}}).value();
  EXPECT_EQ(within.size(), 2u);
  const int chosen = FirstThatFits(within, limit);
  ASSERT_GE(chosen, 0);
  EXPECT_EQ(within[static_cast<size_t>(chosen)].head_rows(), 512);
}

// How all else is kept is chosen as without it.
TEST_F(PlannerTest, RowsOfTheHeadAlonePinNothing) {
  v1::MemorySpec& memory = *spec_.mutable_memory();
  (*memory.mutable_stash())["lm_head"] = v1::STASH_KIND_CHUNK;
  (*memory.mutable_stash_options())["lm_head"].set_rows(64);
  const std::vector<v1::Plan> plans = Plans({});
  EXPECT_EQ(plans.front().name(), "keep");
  EXPECT_GT(plans.size(), 3u);
  for (const v1::Plan& plan : plans) EXPECT_EQ(plan.head_rows(), 64) << plan.name();
}

TEST_F(PlannerTest, FitsToTheByteAndRefusesWithBytes) {
  const std::vector<v1::Plan> plans = Plans({});
  const int64_t smallest = plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
  EXPECT_EQ(FirstThatFits(plans, plans[0].peak_bytes()), 0);
  EXPECT_EQ(FirstThatFits(plans, plans[0].peak_bytes() - 1), 1);
  EXPECT_EQ(FirstThatFits(plans, smallest - 1), -1);
  const std::string refusal = RefusalOf(plans, "cpu:0", smallest - 1, INT64_MAX);
  EXPECT_TRUE(absl::StrContains(refusal, absl::StrCat("(", smallest, " bytes)"))) << refusal;
  EXPECT_TRUE(absl::StrContains(refusal, "cpu:0 has")) << refusal;
}

TEST(PlanProtoTest, AKindThatThisBinaryDoesNotKnowIsNamed) {
  v1::Plan plan;
  plan.set_name("clever");
  plan.add_recipes()->add_kinds()->set_kind("telepathy");
  EXPECT_EQ(FromProto(plan).status().message(), "plan clever has an unknown kind \"telepathy\"");
}

}  // namespace
}  // namespace snug::server
