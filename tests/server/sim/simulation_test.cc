// The simulation against times worked out by hand; policies that do what they must not are found;
// random worlds under every policy.
#include "server/sim/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/sim/interference.h"
#include "tests/server/sim/worlds.h"

namespace snug::server::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SimOptions kNoLoading = {.load_us = 0, .peak_us = kSecond};

absl::StatusOr<Outcome> Simulated(const std::string& policy, std::vector<Job> jobs, size_t devices,
                                  const SimOptions& options = kNoLoading) {
  const auto made = PolicyNamed(policy, {}).value();
  return Simulation(std::move(jobs), DevicesOf(devices, 1000), *made, options).Run();
}

// The six figures of the table, as what a pair does together.
TEST(InterferenceTest, PairsAreAsMeasured) {
  EXPECT_DOUBLE_EQ(2 * SpeedBeside(2, 0.4, 1.0), 2.0);
  EXPECT_DOUBLE_EQ(2 * SpeedBeside(2, 0.75, 1.0), 1.97);
  EXPECT_DOUBLE_EQ(2 * SpeedBeside(2, 1.25, 1.0), 1.79);
  EXPECT_DOUBLE_EQ(2 * SpeedBeside(2, 1.75, 1.0), 1.48);
  EXPECT_DOUBLE_EQ(2 * SpeedBeside(2, 2.0, 1.0), 1.13);
  EXPECT_DOUBLE_EQ(SpeedBeside(1, 1.0, 1.0), 1.0);
  EXPECT_NEAR(10 * SpeedBeside(10, 10.0, 1.0), 1.13, 1e-12);
}

TEST(InterferenceTest, StrengthScalesTheTimeLost) {
  const double lost = 1.0 / SpeedBeside(2, 1.75, 1.0) - 1.0;
  EXPECT_NEAR(1.0 / SpeedBeside(2, 1.75, 2.0) - 1.0, 2 * lost, 1e-12);
  EXPECT_NEAR(1.0 / SpeedBeside(2, 1.75, 0.5) - 1.0, lost / 2, 1e-12);
  EXPECT_EQ(SpeedBeside(2, 1.75, 0.0), 1.0);
}

// 20 s to load, 100 s of steps; the second one comes at 30 s and waits until the first has ended.
TEST(SimulationTest, ExclusiveIsOneAfterAnother) {
  const auto outcome =
      Simulated("exclusive", {JobOf("a", 0, 100, {{10, 1.0}}), JobOf("b", 30, 100, {{10, 1.0}})}, 1,
                SimOptions());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(outcome->completion_s, ElementsAre(120.0, 210.0));
  EXPECT_THAT(outcome->wait_s, ElementsAre(0.0, 90.0));
  EXPECT_EQ(outcome->makespan_s, 240.0);
  EXPECT_EQ(outcome->busy_device_s, 240.0);
  EXPECT_EQ(outcome->job_s, 240.0);
}

// Both keep a fifth of the device busy: neither slows the other.
TEST(SimulationTest, SnugRunsBothAtOnce) {
  const auto outcome = Simulated(
      "snug", {JobOf("a", 0, 100, {{10, 1.0}}), JobOf("b", 30, 100, {{10, 1.0}})}, 1, SimOptions());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(outcome->completion_s, ElementsAre(120.0, 120.0));
}

// The first has a plan of 400 bytes that takes 1.25 times as long. It is told at 10 s, when the
// second one comes and needs 500 bytes, changes its plan at the end of a step of 1 s, and until the
// second one has ended is slower: 11 + 50 s pass, of which 51 s are done, and 49 are left. Then it
// is relaxed, after a step of 1.25 s in which 1 s is done: 48 are left.
TEST(SimulationTest, ANeighbourIsSqueezedAndRelaxed) {
  const auto outcome = Simulated(
      "snug", {JobOf("a", 0, 100, {{1000, 1.0}, {400, 1.25}}), JobOf("b", 10, 50, {{500, 1.0}})},
      1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->squeezes, 1);
  EXPECT_EQ(outcome->relaxes, 1);
  ASSERT_EQ(outcome->completion_s.size(), 2u);
  EXPECT_NEAR(outcome->completion_s[0], 51.0, 1e-3);  // b: from 10 s to 61 s.
  EXPECT_NEAR(outcome->completion_s[1], 61.0 + 1.25 + 48.0, 1e-3);
}

// The second is believed to need 300 of the 500 bytes that are left, and takes 600: it is started
// again, and then waits until the first has ended.
TEST(SimulationTest, CarmaStartsAgainWhatRanOutOfMemory) {
  std::vector<Job> jobs = {JobOf("a", 0, 100, {{500, 1.0}}), JobOf("b", 10, 50, {{600, 1.0}})};
  jobs[1].estimate = 0.5;
  const auto outcome = Simulated("carma", jobs, 1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->oom_requeues, 1);
  EXPECT_THAT(outcome->wait_s, ElementsAre(0.0, 90.0));
  EXPECT_EQ(Simulated("snug", jobs, 1)->oom_requeues, 0);
}

// 4/7 of the compute are enough for a fifth, and 400 bytes fit 4/8 of 1,000. The second one has
// 2/7, and the third no slice of so many bytes but the first.
TEST(SimulationTest, FixedSlicesAreOfOneJobEach) {
  const auto outcome =
      Simulated("fixed",
                {JobOf("a", 0, 100, {{400, 1.0}}), JobOf("b", 0, 100, {{200, 1.0}}),
                 JobOf("c", 0, 100, {{400, 1.0}}), JobOf("d", 0, 100, {{600, 1.0}})},
                1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->refused, 1);
  ASSERT_EQ(outcome->completion_s.size(), 3u);
  EXPECT_NEAR(outcome->completion_s[2], 200.0, 1e-3);
  EXPECT_NEAR(outcome->busy_device_s, 200.0, 1e-3);
  EXPECT_NEAR(outcome->job_s, 300.0, 1e-3);
}

// The short one goes first, though it came last.
TEST(SimulationTest, TheOracleKnowsWhatIsShort) {
  std::vector<Job> jobs = {JobOf("a", 0, 100, {{900, 1.0}}), JobOf("b", 1, 1000, {{900, 1.0}}),
                           JobOf("c", 2, 10, {{900, 1.0}})};
  const auto outcome = Simulated("oracle", jobs, 1);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_NEAR(outcome->completion_s[1], 108.0, 1e-3);
}

// A policy that does as it is told.
class Told : public Policy {
 public:
  explicit Told(std::vector<Round> rounds) : rounds_(std::move(rounds)) {}
  Round Decide(const World&) override {
    return next_ < rounds_.size() ? rounds_[next_++] : Round();
  }

 private:
  const std::vector<Round> rounds_;
  size_t next_ = 0;
};

absl::Status ErrorOf(std::vector<Round> rounds, std::vector<Job> jobs) {
  Told policy(std::move(rounds));
  return Simulation(std::move(jobs), DevicesOf(1, 1000), policy, kNoLoading).Run().status();
}

TEST(InvariantsTest, WhatAPolicyMustNotDoIsFound) {
  const std::vector<Job> jobs = {JobOf("a", 0, 10, {{600, 1.0}}), JobOf("b", 1, 10, {{600, 1.0}})};
  const Round a = {.starts = {{"a", 0, 0, 600}}}, b = {.starts = {{"b", 0, 0, 600}}};
  const Round little = {.starts = {{"a", 0, 0, 500}}};
  EXPECT_THAT(ErrorOf({a, {}, b}, jobs).message(), HasSubstr("1200 are promised"));
  EXPECT_THAT(ErrorOf({little}, jobs).message(), HasSubstr("500 are promised and 600 held"));
  EXPECT_THAT(ErrorOf({a, a}, jobs).message(), HasSubstr("a is started and does not wait"));
  EXPECT_THAT(ErrorOf({}, jobs).message(), HasSubstr("job a waits first"));
  EXPECT_THAT(ErrorOf({a, {.refused = {"a"}}}, jobs).message(), HasSubstr("refused"));
  EXPECT_THAT(ErrorOf({{.changes = {{"a", 0, 0}}}}, jobs).message(), HasSubstr("cannot change"));
}

// The younger one goes first again and again.
TEST(InvariantsTest, AJobThatIsPassedByIsFound) {
  std::vector<Round> rounds = {{.starts = {{"x", 0, 0, 600}}}, {}};
  std::vector<Job> jobs = {JobOf("x", 0, 10, {{600, 1.0}}), JobOf("old", 1, 10, {{600, 1.0}})};
  jobs.push_back(JobOf("young", 2, 10, {{600, 1.0}}));
  rounds.resize(4);  // Nothing is done at the arrivals; x ends after the second.
  rounds.push_back({.starts = {{"young", 0, 0, 600}}});
  EXPECT_THAT(ErrorOf(rounds, jobs).message(), HasSubstr("job old waits first"));
}

// Random worlds, until so many events have happened. Everything is checked by the simulation at
// each of them; each world is run twice.
void RunRandomWorlds(int64_t events) {
  std::map<std::string, int64_t> squeezes;
  for (uint64_t seed = 1; events > 0; ++seed) {
    Random random(seed);
    const auto devices = static_cast<size_t>(random.Whole(1, 4));
    const std::vector<Job> jobs = RandomJobs(seed, static_cast<int>(random.Whole(10, 200)));
    for (const std::string& policy : PolicyNames()) {
      const auto outcome = Simulated(policy, jobs, devices, SimOptions());
      ASSERT_TRUE(outcome.ok()) << policy << ", seed " << seed << ": " << outcome.status();
      ASSERT_EQ(outcome->ended + outcome->refused, outcome->jobs) << policy << ", seed " << seed;
      if (policy != "carma") {
        ASSERT_EQ(outcome->oom_requeues, 0) << policy << ", seed " << seed;
      }
      if (policy == "snug") {
        ASSERT_EQ(outcome->starved, 0) << "seed " << seed;
      }
      ASSERT_EQ(outcome->digest, Simulated(policy, jobs, devices, SimOptions())->digest) << policy;
      squeezes[policy] += outcome->squeezes;
      events -= outcome->events;
    }
  }
  EXPECT_GT(squeezes["snug"], 20);
  EXPECT_EQ(squeezes["exclusive"], 0);
}

TEST(RandomWorldsTest, SomeEvents) { RunRandomWorlds(20'000); }

// The long set has it: tests/server/CMakeLists.txt.
TEST(RandomWorldsTest, DISABLED_AMillionEvents) { RunRandomWorlds(1'000'000); }

}  // namespace
}  // namespace snug::server::sim
