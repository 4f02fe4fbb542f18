#include "server/place/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

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

const DeviceState kCpu = {.name = "cpu:0", .capacity_bytes = 8 * kGiB};
const DeviceState kGpu0 = {.name = "gpu:0", .gpu = true, .capacity_bytes = 40 * kGiB};
const DeviceState kGpu1 = {.name = "gpu:1", .gpu = true, .capacity_bytes = 80 * kGiB};

// Of `small` bytes on each device that is named.
QueuedJob JobOn(const std::string& id, int64_t order, const std::vector<std::string>& devices) {
  QueuedJob job{.id = id, .order = order};
  for (const std::string& device : devices) job.plan_bytes[device] = {kGiB};
  return job;
}

// Three jobs, three devices: GPUs go first, in their order, and the CPU is used as well.
TEST(PolicyTest, AllDevicesAreUsedGpusFirst) {
  const std::vector<std::string> all = {"cpu:0", "gpu:0", "gpu:1"};
  const Decision decision =
      Decide({JobOn("a", 1, all), JobOn("b", 2, all), JobOn("c", 3, all), JobOn("d", 4, all)},
             {kCpu, kGpu0, kGpu1}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on gpu:0", "b on gpu:1", "c on cpu:0"));
  EXPECT_THAT(decision.waiting.at("d"), testing::HasSubstr("cpu:0 or gpu:0 or gpu:1"));
}

// The CPU would keep everything, the GPU must recompute: it is faster all the same. Among GPUs the
// plan decides.
TEST(PolicyTest, TheSlowestPlanOfAGpuIsBeforeTheFastestOfACpu) {
  QueuedJob job{.id = "a", .order = 1};
  job.plan_bytes = {{"cpu:0", {8 * kGiB, kGiB}}, {"gpu:0", {50 * kGiB, 30 * kGiB}}};
  const Decision decision = Decide({job}, {kCpu, kGpu0}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on gpu:0"));
  EXPECT_EQ(decision.placements[0].plan, 1);
  job.plan_bytes["gpu:1"] = {50 * kGiB, 30 * kGiB};
  EXPECT_THAT(Placed(Decide({job}, {kCpu, kGpu0, kGpu1}, 0)), ElementsAre("a on gpu:1"));
}

// It fits no GPU, and one of them is busy anyway: the CPU is its only device, which a younger job
// leaves to it, while the free GPU is anybody's.
TEST(PolicyTest, AJobThatOnlyTheCpuHoldsWaitsForIt) {
  QueuedJob large{.id = "large", .order = 1};
  large.plan_bytes = {{"cpu:0", {7 * kGiB}}, {"gpu:0", {50 * kGiB}}};
  DeviceState busy = kCpu;
  busy.jobs = 1;
  const Decision decision =
      Decide({large, JobOn("young", 2, {"cpu:0", "gpu:0"})}, {busy, kGpu0}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("young on gpu:0"));
  EXPECT_THAT(decision.waiting.at("large"), testing::HasSubstr("waits for cpu:0"));
}

// Somebody else's process has grown: what is left holds the slower plan; less than that, none; and
// the job stays feasible.
TEST(PolicyTest, WhatOthersHaveTakenCannotBeGiven) {
  QueuedJob job{.id = "a", .order = 1};
  job.plan_bytes = {{"gpu:0", {30 * kGiB, 10 * kGiB}}};
  DeviceState gpu = kGpu0;
  gpu.taken_bytes = 10 * kGiB;
  EXPECT_EQ(Decide({job}, {gpu}, 0).placements.at(0).plan, 0);
  gpu.taken_bytes = 10 * kGiB + 1;
  EXPECT_EQ(Decide({job}, {gpu}, 0).placements.at(0).plan, 1);
  gpu.taken_bytes = 31 * kGiB;
  EXPECT_EQ(Decide({job}, {gpu}, 0).waiting.at("a"),
            "waits for gpu:0: others have taken 31 GiB of it");
}

// Of two GPUs one is in trouble and the other at work: it waits for either.
TEST(PolicyTest, NothingIsPlacedOnAGpuInTrouble) {
  DeviceState lost = kGpu0, busy = kGpu1;
  lost.trouble = "it is lost";
  busy.jobs = 1;
  const QueuedJob job = JobOn("a", 1, {"gpu:0", "gpu:1"});
  EXPECT_EQ(Decide({job}, {lost, busy}, 0).waiting.at("a"),
            "waits for gpu:1: another job runs there; or for gpu:0: it is lost");
  EXPECT_THAT(Placed(Decide({job}, {lost, kGpu1}, 0)), ElementsAre("a on gpu:1"));
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

// What the older one needs is not known yet, as after a restart: the younger one waits, and is
// told.
TEST(PolicyTest, NobodyIsPlacedBeforeAnOlderJobIsJudged) {
  QueuedJob older{.id = "older", .order = 1, .judgement = Judgement::kAwaited};
  const QueuedJob younger = Job("younger", 2, {kGiB});
  const Decision decision = Decide({younger, older}, {kEmpty}, 0);
  EXPECT_THAT(decision.placements, IsEmpty());
  EXPECT_EQ(decision.waiting.at("older"), "its plans are being worked out");
  EXPECT_EQ(decision.waiting.at("younger"), "waits for cpu:0: 1 job is ahead of it");
  older.judgement = Judgement::kHeld;  // Nobody knows for how long.
  EXPECT_THAT(Placed(Decide({younger, older}, {kEmpty}, 0)), ElementsAre("younger on cpu:0"));
}

// Of higher priority, and as yet unknown: it counts, however young it is.
TEST(PolicyTest, NobodyIsPlacedBeforeAHigherPriorityIsJudged) {
  const QueuedJob urgent{
      .id = "urgent", .priority = 5, .order = 9, .judgement = Judgement::kAwaited};
  EXPECT_THAT(Decide({Job("a", 1, {kGiB}), urgent}, {kEmpty}, 0).placements, IsEmpty());
}

// A round over 10,000 jobs with nothing to give, and one where a small device is free that nobody
// fits on: a group is asked once.
TEST(JobQueueTest, ALongQueueIsOneShortRound) {
  JobQueue queue;
  for (int i = 0; i < 10'000; ++i) {
    QueuedJob job = Job("job-" + std::to_string(i), i, {6 * kGiB});
    job.budget_bytes = 7 * kGiB + i % 10;  // Ten groups.
    queue.Put(std::move(job));
  }
  const DeviceState small = {.name = "cpu:1", .capacity_bytes = 2 * kGiB};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(Decide(queue, {kBusy, small}, 0).placements, IsEmpty());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 0.05);
  EXPECT_EQ(ReasonsToWait(queue, {kBusy, small}, 0, {"job-7"}).at("job-7"),
            "waits for cpu:0: 7 jobs are ahead of it");
  EXPECT_THAT(Placed(Decide(queue, {kEmpty, small}, 0)), ElementsAre("job-0 on cpu:0"));
}

TEST(JobQueueTest, AJobIsThereOnce) {
  JobQueue queue;
  queue.Put(Job("a", 1, {kGiB}));
  QueuedJob urgent = Job("a", 1, {2 * kGiB});
  urgent.priority = 3;
  queue.Put(urgent);
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(queue.Find("a")->priority, 3);
  queue.Remove("a");
  queue.Remove("a");
  EXPECT_EQ(queue.Find("a"), nullptr);
}

// A worker on GPU-b outlived the daemon, and GPU-b is counted first now. Another one is on a GPU
// that is gone, one on a GPU as an older snugd named it.
TEST(LedgerTest, PromisesFollowTheGpuNotItsNumber) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10},
                 {.name = "gpu:0", .capacity_bytes = 10, .gpu = {.uuid = "GPU-b"}},
                 {.name = "gpu:1", .capacity_bytes = 10, .gpu = {.uuid = "GPU-a"}}});
  ledger.Restore("GPU-b", "survivor", 7);
  ledger.Restore("GPU-c", "stray", 5);
  ledger.Restore("gpu:1", "old", 2);
  EXPECT_EQ(ledger.ReservedOn("gpu:0"), 7);
  EXPECT_EQ(ledger.Snapshot().at(1).reserved_bytes, 7);
  EXPECT_EQ(ledger.Snapshot().at(1).jobs, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Reserve("gpu:0", "new", 4)));
  EXPECT_EQ(ledger.ReservedOn("GPU-a"), 2);
  EXPECT_TRUE(ledger.Reserve("gpu:1", "new", 8).ok());
  EXPECT_THAT(ledger.Elsewhere(), ElementsAre(testing::Pair("GPU-c", 5)));
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

// Each device keeps its own account.
TEST(LedgerTest, DevicesDoNotShareTheirBytes) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10},
                 {.name = "gpu:0", .capacity_bytes = 5},
                 {.name = "gpu:1", .capacity_bytes = 7}});
  EXPECT_TRUE(ledger.Reserve("gpu:0", "a", 5).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Reserve("gpu:0", "b", 1)));
  EXPECT_TRUE(ledger.Reserve("gpu:1", "b", 6).ok());
  EXPECT_TRUE(ledger.Reserve("cpu:0", "c", 10).ok());
  const std::vector<DeviceState> states = ledger.Snapshot();
  ASSERT_EQ(states.size(), 3u);
  EXPECT_FALSE(states[0].gpu);
  EXPECT_TRUE(states[1].gpu && states[2].gpu);
  EXPECT_EQ(states[1].reserved_bytes, 5);
  EXPECT_EQ(states[2].reserved_bytes, 6);
  ledger.Release("a");
  EXPECT_EQ(ledger.ReservedOn("gpu:0"), 0);
  EXPECT_EQ(ledger.ReservedOn("gpu:1"), 6);
  EXPECT_EQ(ledger.Find("gpu:1")->capacity_bytes, 7);
  EXPECT_EQ(ledger.Find("gpu:2"), nullptr);
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
