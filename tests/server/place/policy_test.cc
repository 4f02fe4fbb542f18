#include "server/place/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/place/ledger.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

QueuedJob Job(const std::string& id, int64_t order, std::vector<int64_t> bytes) {
  return {.id = id, .order = order, .plan_bytes = {{"cpu:0", bytes}, {"cpu:1", bytes}}};
}

std::vector<std::string> Placed(const Decision& decision) {
  std::vector<std::string> placed;
  for (const Placement& placement : decision.placements)
    placed.push_back(placement.job + " on " + placement.device);
  return placed;
}

const DeviceState kEmpty = {.name = "cpu:0", .capacity_bytes = 8 * kGiB};
const DeviceState kBusy = {
    .name = "cpu:0", .capacity_bytes = 8 * kGiB, .reserved_bytes = kGiB, .jobs = 1};

TEST(PolicyTest, FirstComeFirstServed) {
  const Decision decision = Decide({Job("b", 2, {kGiB}), Job("a", 1, {kGiB})}, {kEmpty}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on cpu:0"));
  EXPECT_THAT(decision.waiting.at("b"), testing::HasSubstr("cpu:0"));
}

TEST(PolicyTest, HigherPriorityGoesFirst) {
  QueuedJob late = Job("late", 2, {kGiB});
  late.priority = 1;
  EXPECT_THAT(Placed(Decide({Job("early", 1, {kGiB}), late}, {kEmpty}, 0)),
              ElementsAre("late on cpu:0"));
}

// The three plans need 9, 6 and 2 GiB; the device has 8.
TEST(PolicyTest, TakesTheFastestPlanThatFits) {
  const Decision decision = Decide({Job("a", 1, {9 * kGiB, 6 * kGiB, 2 * kGiB})}, {kEmpty}, 0);
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(decision.placements[0].plan, 1);
  EXPECT_EQ(decision.placements[0].bytes, 6 * kGiB);
}

TEST(PolicyTest, TheUsersBudgetBindsToTheByte) {
  QueuedJob job = Job("a", 1, {6 * kGiB, 2 * kGiB});
  job.budget_bytes = 6 * kGiB;
  EXPECT_EQ(Decide({job}, {kEmpty}, 0).placements.at(0).plan, 0);
  job.budget_bytes = 6 * kGiB - 1;
  EXPECT_EQ(Decide({job}, {kEmpty}, 0).placements.at(0).plan, 1);
  job.budget_bytes = 2 * kGiB - 1;
  EXPECT_THAT(Decide({job}, {kEmpty}, 0).infeasible, ElementsAre("a"));
}

TEST(PolicyTest, CapacityIsEnoughToTheByte) {
  const DeviceState exact = {.name = "cpu:0", .capacity_bytes = kGiB};
  const DeviceState less = {.name = "cpu:0", .capacity_bytes = kGiB - 1};
  EXPECT_THAT(Placed(Decide({Job("a", 1, {kGiB})}, {exact}, 0)), ElementsAre("a on cpu:0"));
  EXPECT_THAT(Decide({Job("a", 1, {kGiB})}, {less}, 0).infeasible, ElementsAre("a"));
}

// cpu:0 is busy and the only one for the older job; the younger would fit on either. It may take
// cpu:1, not cpu:0's turn.
TEST(PolicyTest, YoungerJobTakesOnlyWhatNoOlderOneCouldUse) {
  QueuedJob older = Job("older", 1, {6 * kGiB});
  QueuedJob younger = Job("younger", 2, {kGiB});
  const DeviceState small = {.name = "cpu:1", .capacity_bytes = 2 * kGiB};
  EXPECT_THAT(Placed(Decide({older, younger}, {kBusy, small}, 0)), ElementsAre("younger on cpu:1"));
  older.plan_bytes["cpu:1"] = {kGiB};
  EXPECT_THAT(Placed(Decide({older, younger}, {kBusy, small}, 0)), ElementsAre("older on cpu:1"));
}

TEST(PolicyTest, OneJobPerDevice) {
  EXPECT_THAT(Decide({Job("a", 1, {kGiB})}, {kBusy}, 0).placements, IsEmpty());
}

TEST(PolicyTest, JobThatWaitsForItsRetryBlocksNobody) {
  QueuedJob retry = Job("retry", 1, {kGiB});
  retry.not_before_us = 5'000'000;
  const Decision decision = Decide({retry, Job("b", 2, {kGiB})}, {kEmpty}, 1'000'000);
  EXPECT_THAT(Placed(decision), ElementsAre("b on cpu:0"));
  EXPECT_EQ(decision.waiting.at("retry"), "tries again in 5 s");
  retry.retry_cause = "no room";
  EXPECT_EQ(Decide({retry}, {kEmpty}, 1'000'000).waiting.at("retry"),
            "no room; tries again in 5 s");
}

TEST(LedgerTest, PromisesNeverExceedTheCapacity) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10}});
  EXPECT_TRUE(ledger.Reserve("cpu:0", "a", 6).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Reserve("cpu:0", "b", 5)));
  EXPECT_TRUE(ledger.Reserve("cpu:0", "b", 4).ok());
  EXPECT_FALSE(ledger.Reserve("cpu:0", "b", 0).ok());
  ledger.Release("a");
  EXPECT_EQ(ledger.ReservedOn("cpu:0"), 4);
  EXPECT_TRUE(absl::IsNotFound(ledger.Reserve("gpu:0", "c", 1)));
}

// The daemon came back with a smaller device: the promise stands, nothing new is admitted.
TEST(LedgerTest, RestoredPromiseStandsOnAShrunkDevice) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10}});
  ledger.Restore("cpu:0", "a", 12);
  EXPECT_EQ(ledger.ReservedOn("cpu:0"), 12);
  EXPECT_FALSE(ledger.Reserve("cpu:0", "b", 1).ok());
  EXPECT_EQ(ledger.Snapshot().at(0).jobs, 1);
}

}  // namespace
}  // namespace snug::server
