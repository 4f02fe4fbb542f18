// Which plans the jobs of a device should have, against small cases worked out by hand and against
// all combinations of many drawn ones.
#include "server/place/squeeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

MATCHER_P2(MoveIs, job, plan, "") { return arg.job == job && arg.plan == plan; }

SqueezableJob Job(const std::string& name, std::vector<PlanOption> plans, int current = 0) {
  return {.job = name, .plans = std::move(plans), .current = current};
}

// Of equally fast plans the smaller one is as good.
TEST(SqueezeTest, TheFastestPlanWithinSoManyBytes) {
  const std::vector<PlanOption> plans = {{100, 1.0}, {90, 1.0}, {60, 1.2}, {40, 1.3}};
  EXPECT_EQ(FastestPlanWithin(plans, 100), 1);
  EXPECT_EQ(FastestPlanWithin(plans, 89), 2);
  EXPECT_EQ(FastestPlanWithin(plans, 40), 3);
  EXPECT_EQ(FastestPlanWithin(plans, 39), -1);
}

// Both neighbours could free the 30 bytes; the second one loses less by it.
TEST(SqueezeTest, TheNeighbourThatLosesLeastMakesRoom) {
  const auto squeeze =
      MakeRoom(Job("new", {{50, 1.0}}),
               {Job("a", {{100, 1.0}, {60, 1.5}}), Job("b", {{90, 1.0}, {60, 1.1}})},
               /*free_bytes=*/20);
  ASSERT_TRUE(squeeze.has_value());
  EXPECT_THAT(squeeze->moves, ElementsAre(MoveIs("b", 1)));
  EXPECT_NEAR(squeeze->gain, 1.0 - (1.0 - 1.0 / 1.1), 1e-12);
}

// No more than is needed: the newcomer's smaller plan would do with one squeeze less, and lose
// more than that.
TEST(SqueezeTest, TheNewcomersPlanIsChosenWithTheSqueezes) {
  const std::vector<SqueezableJob> neighbours = {Job("a", {{100, 1.0}, {80, 1.01}}),
                                                 Job("b", {{100, 1.0}, {80, 1.02}})};
  const auto squeeze = MakeRoom(Job("new", {{60, 1.0}, {40, 1.5}}), neighbours, 20);
  ASSERT_TRUE(squeeze.has_value());
  EXPECT_THAT(squeeze->moves, testing::UnorderedElementsAre(MoveIs("a", 1), MoveIs("b", 1)));
}

TEST(SqueezeTest, NobodyIsSqueezedForWhatStillWouldNotFit) {
  EXPECT_FALSE(MakeRoom(Job("new", {{50, 1.0}}), {Job("a", {{100, 1.0}, {80, 1.1}})}, 20));
  EXPECT_FALSE(MakeRoom(Job("new", {{50, 1.0}}), {}, 49));
}

// Three neighbours at half of their speed for one job: all together lose by it.
TEST(SqueezeTest, NobodyIsSqueezedAtALoss) {
  const std::vector<PlanOption> plans = {{100, 1.0}, {90, 2.0}};
  const std::vector<SqueezableJob> three = {Job("a", plans), Job("b", plans), Job("c", plans)};
  EXPECT_FALSE(MakeRoom(Job("new", {{30, 1.0}}), three, 0));
  EXPECT_TRUE(MakeRoom(Job("new", {{10, 1.0}}), three, 0));
}

// Twice the weight for each step of priority: at 1 - 1/1.4 of its speed the neighbour's loss is
// 0.29 of its weight.
TEST(SqueezeTest, ANeighbourOfHigherPriorityCountsMore) {
  SqueezableJob neighbour = Job("a", {{100, 1.0}, {50, 1.4}});
  const SqueezableJob newcomer = Job("new", {{50, 1.0}});
  for (const auto& [priority, squeezed] :
       {std::pair(-1000, true), {0, true}, {1, true}, {2, false}, {1000, false}}) {
    neighbour.priority = priority;
    EXPECT_EQ(MakeRoom(newcomer, {neighbour}, 0).has_value(), squeezed) << priority;
  }
}

// The bytes suffice for one of both. The second one gains more by them.
TEST(SqueezeTest, FreeBytesGoToWhomTheyHelpMost) {
  const std::vector<SqueezableJob> jobs = {Job("a", {{100, 1.0}, {60, 1.1}}, 1),
                                           Job("b", {{100, 1.0}, {60, 1.3}}, 1)};
  EXPECT_THAT(FillRoom(jobs, 79), ElementsAre(MoveIs("b", 0)));
  EXPECT_THAT(FillRoom(jobs, 80), ElementsAre(MoveIs("a", 0), MoveIs("b", 0)));
  EXPECT_THAT(FillRoom(jobs, 39), IsEmpty());
}

// Half a percent is not worth a change.
TEST(SqueezeTest, ALittleFasterIsNotWorthAChange) {
  EXPECT_THAT(FillRoom({Job("a", {{100, 1.0}, {60, 1.005}}, 1)}, 1000), IsEmpty());
  EXPECT_THAT(FillRoom({Job("a", {{100, 1.0}, {60, 1.05}}, 0)}, 1000), IsEmpty());
  // But one that changes its plan anyway gets the best.
  EXPECT_THAT(FillRoom({Job("a", {{100, 1.0}, {70, 1.005}, {60, 1.3}}, 2)}, 1000),
              ElementsAre(MoveIs("a", 0)));
}

// A job as frontiers are: fewer bytes, slower, by growing steps.
SqueezableJob DrawnJob(std::mt19937& random, int number) {
  std::uniform_int_distribution<int> bytes(1, 40), priorities(-1, 1), count(1, 5);
  std::uniform_real_distribution<double> slower(0.005, 0.12);
  SqueezableJob job = Job("job" + std::to_string(number), {{150, 1.0}});
  job.priority = priorities(random);
  for (int plan = count(random); plan > 1; --plan)
    job.plans.push_back({job.plans.back().bytes - bytes(random) / 2 - 1,
                         job.plans.back().seconds + slower(random)});
  job.current =
      std::uniform_int_distribution<int>(0, static_cast<int>(job.plans.size()) - 1)(random);
  return job;
}

double ValueOf(const SqueezableJob& job, int plan, int priority) {
  return std::exp2(job.priority - priority) / job.plans[static_cast<size_t>(plan)].seconds;
}

// The best throughput, less what the neighbours have now, over all combinations of smaller plans.
double BestOfAll(const SqueezableJob& newcomer, const std::vector<SqueezableJob>& jobs, size_t next,
                 int64_t free) {
  if (next == jobs.size()) {
    const int plan = FastestPlanWithin(newcomer.plans, free);
    return plan < 0 ? -1e9 : ValueOf(newcomer, plan, newcomer.priority);
  }
  const SqueezableJob& job = jobs[next];
  const int64_t held = job.plans[static_cast<size_t>(job.current)].bytes;
  double best = -1e9;
  for (int plan = 0; plan < static_cast<int>(job.plans.size()); ++plan) {
    const int64_t bytes = job.plans[static_cast<size_t>(plan)].bytes;
    if (bytes > held) continue;
    const double change =
        ValueOf(job, plan, newcomer.priority) - ValueOf(job, job.current, newcomer.priority);
    best = std::max(best, change + BestOfAll(newcomer, jobs, next + 1, free + held - bytes));
  }
  return best;
}

// In 2,000 draws of five neighbours: what it does fits, and gains what the best combination does.
TEST(SqueezeTest, IsTheBestOfAllCombinations) {
  std::mt19937 random(20261123);
  int made = 0;
  for (int draw = 0; draw < 2000; ++draw) {
    std::vector<SqueezableJob> jobs;
    for (int i = 0; i < 5; ++i) jobs.push_back(DrawnJob(random, i));
    SqueezableJob newcomer = DrawnJob(random, 9);
    int64_t free = std::uniform_int_distribution<int>(60, 140)(random);
    if (FastestPlanWithin(newcomer.plans, free) >= 0) continue;
    const double best = BestOfAll(newcomer, jobs, 0, free);
    const auto squeeze = MakeRoom(newcomer, jobs, free);
    ASSERT_NEAR(squeeze ? squeeze->gain : 0.0, best > 0.01 ? best : 0.0, 1e-9) << draw;
    if (!squeeze) continue;
    ++made;
    for (const PlanMove& move : squeeze->moves) {
      const SqueezableJob& job = jobs[static_cast<size_t>(move.job.back() - '0')];
      const int64_t freed = job.plans[static_cast<size_t>(job.current)].bytes -
                            job.plans[static_cast<size_t>(move.plan)].bytes;
      ASSERT_GT(freed, 0) << draw;
      free += freed;
    }
    ASSERT_GE(FastestPlanWithin(newcomer.plans, free), 0) << draw;
  }
  EXPECT_GT(made, 200);
}

// 64 neighbours of 16 plans each, in bytes of a real device: amounts are rounded there, and never
// is less freed than is needed.
TEST(SqueezeTest, ManyNeighboursOfManyPlans) {
  constexpr int64_t kMiB = 1 << 20;
  std::vector<SqueezableJob> jobs;
  for (int i = 0; i < 64; ++i) {
    jobs.push_back(Job(std::to_string(i), {}));
    for (int plan = 0; plan < 16; ++plan)
      jobs.back().plans.push_back({1000 * kMiB - plan * (30 * kMiB + i), 1.0 + 0.01 * plan});
  }
  const SqueezableJob newcomer = Job("new", {{800 * kMiB, 1.0}, {700 * kMiB, 1.2}});
  const auto squeeze = MakeRoom(newcomer, jobs, 50 * kMiB);
  ASSERT_TRUE(squeeze.has_value());
  int64_t freed = 0;
  for (const PlanMove& move : squeeze->moves)
    freed += move.plan * (30 * kMiB + std::stoi(move.job));
  EXPECT_GE(freed, 750 * kMiB);
  // 25 steps of 30 MiB, each at 1 % of a neighbour's speed.
  EXPECT_GT(squeeze->gain, 0.75);
}

}  // namespace
}  // namespace snug::server
