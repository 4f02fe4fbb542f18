#include "server/place/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/place/ledger.h"
#include "server/place/room.h"
#include "tests/server/place/decisions.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RunningJob Running(int64_t order, int64_t bytes, int64_t end_us = INT64_MAX) {
  return {.key = {0, order, "running-" + std::to_string(order)}, .bytes = bytes, .end_us = end_us};
}

// cpu:0 with 8 GiB, on which these run.
DeviceState With(std::vector<RunningJob> running) {
  DeviceState device{.name = "cpu:0", .capacity_bytes = 8 * kGiB};
  for (const RunningJob& job : running) device.reserved_bytes += job.bytes;
  device.jobs = static_cast<int>(running.size());
  device.running = std::move(running);
  return device;
}

const DeviceState kEmpty = {.name = "cpu:0", .capacity_bytes = 8 * kGiB};
const DeviceState kBusy = With({Running(0, 7 * kGiB)});

TEST(PolicyTest, FirstComeFirstServed) {
  const Decision decision = Decide({Job("b", 2, {5 * kGiB}), Job("a", 1, {5 * kGiB})}, {kEmpty}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on cpu:0"));
  EXPECT_EQ(decision.waiting.at("b"),
            "waits for cpu:0: it needs 5 GiB; 3 GiB are free beside 1 job");
}

// 3 + 3 + 2 of 8 GiB; the fourth would be one byte too many.
TEST(PolicyTest, ADeviceRunsAllThatItsBytesHold) {
  const Decision decision = Decide(
      {Job("a", 1, {3 * kGiB}), Job("b", 2, {3 * kGiB}), Job("c", 3, {2 * kGiB}), Job("d", 4, {1})},
      {kEmpty}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on cpu:0", "b on cpu:0", "c on cpu:0"));
  EXPECT_EQ(decision.waiting.at("d"), "waits for cpu:0: it needs 1 B; 0 B are free beside 3 jobs");
}

// The second is given the fastest plan that fits beside the first, not the fastest of all.
TEST(PolicyTest, TheFastestPlanThatFitsWhatIsFree) {
  const Decision decision =
      Decide({Job("a", 1, {5 * kGiB, kGiB}), Job("b", 2, {6 * kGiB, 3 * kGiB, kGiB})}, {kEmpty}, 0);
  ASSERT_EQ(decision.placements.size(), 2u);
  EXPECT_EQ(decision.placements[1].plan, 1);
  EXPECT_EQ(decision.placements[1].bytes, 3 * kGiB);
}

// Plans of 8, 4, 2 and 1 threads: the whole for the first, a half for the second, a quarter for the
// third and fourth, an eighth, which is the last share, for all others.
TEST(PolicyTest, ThreadsAreDividedByHalves) {
  std::vector<QueuedJob> jobs;
  for (int i = 0; i < 10; ++i)
    jobs.push_back(Job("job-" + std::to_string(i), i, {{10, 8}, {9, 4}, {8, 2}, {7, 1}}));
  DeviceState device = kEmpty;
  device.shares = {8, 4, 2, 1};
  std::vector<int> plans;
  for (const Placement& placement : Decide(jobs, {device}, 0).placements)
    plans.push_back(placement.plan);
  EXPECT_THAT(plans, ElementsAre(0, 1, 2, 2, 3, 3, 3, 3, 3, 3));
}

// Two devices of the same kind: the second job goes where nobody is.
TEST(PolicyTest, AnIdleDeviceComesBeforeABusyOne) {
  DeviceState other = kEmpty;
  other.name = "cpu:1";
  EXPECT_THAT(Placed(Decide({Job("a", 1, {kGiB}), Job("b", 2, {kGiB})}, {kEmpty, other}, 0)),
              ElementsAre("a on cpu:0", "b on cpu:1"));
}

TEST(PolicyTest, NoMoreJobsAtOnceThanTheDeviceMayRun) {
  DeviceState device = kEmpty;
  device.max_jobs = 2;
  const std::vector<QueuedJob> jobs = {Job("a", 1, {kGiB}), Job("b", 2, {kGiB}),
                                       Job("c", 3, {kGiB})};
  const Decision decision = Decide(jobs, {device}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on cpu:0", "b on cpu:0"));
  EXPECT_EQ(decision.waiting.at("c"),
            "waits for cpu:0: 2 jobs run there, which is the most at once");
  device.max_jobs = 1;
  EXPECT_EQ(Decide(jobs, {device}, 0).waiting.at("b"), "waits for cpu:0: another job runs there");
}

TEST(PolicyTest, HigherPriorityGoesFirst) {
  QueuedJob late = Job("late", 2, {5 * kGiB});
  late.priority = 1;
  EXPECT_THAT(Placed(Decide({Job("early", 1, {5 * kGiB}), late}, {kEmpty}, 0)),
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

// Of 8 GiB, 4 end soon and 3 later. The head needs 5, which there are when the first has ended: a
// GiB would be missed then by nobody's leave.
TEST(PolicyTest, NobodyDelaysTheReservedStart) {
  const DeviceState device = With({Running(1, 4 * kGiB, 100), Running(2, 3 * kGiB, 200)});
  const QueuedJob head = Job("head", 3, {5 * kGiB});
  const Decision decision = Decide({head, Job("young", 4, {kGiB})}, {device}, 0);
  EXPECT_THAT(decision.placements, IsEmpty());
  EXPECT_EQ(decision.waiting.at("young"), "waits for cpu:0: 1 job is ahead of it");
}

// Two GiB are free now, one of which the head needs at its start, when 4 more are there.
TEST(PolicyTest, WhatIsLeftBesideTheHeadAtItsStartIsGivenAway) {
  const DeviceState device = With({Running(1, 4 * kGiB, 100), Running(2, 2 * kGiB, 200)});
  const QueuedJob head = Job("head", 3, {5 * kGiB});
  EXPECT_THAT(Placed(Decide({head, Job("young", 4, {kGiB})}, {device}, 0)),
              ElementsAre("young on cpu:0"));
  EXPECT_THAT(Decide({head, Job("young", 4, {kGiB + 1})}, {device}, 0).placements, IsEmpty());
  const Decision both =
      Decide({head, Job("a", 4, {kGiB / 2}), Job("b", 5, {kGiB / 2 + 1})}, {device}, 0);
  EXPECT_THAT(Placed(both), ElementsAre("a on cpu:0"));
}

// The larger one ends last: the head starts only then, with 3 GiB beside it.
TEST(PolicyTest, TheReservedStartFollowsTheEstimates) {
  const DeviceState device = With({Running(1, 4 * kGiB, 200), Running(2, 3 * kGiB, 100)});
  const QueuedJob head = Job("head", 3, {5 * kGiB});
  EXPECT_THAT(Placed(Decide({head, Job("young", 4, {kGiB})}, {device}, 0)),
              ElementsAre("young on cpu:0"));
}

// Whatever the estimates say, those behind the head have no more together than the capacity holds
// beside it: 2 GiB of such a one run already.
TEST(PolicyTest, ThoseBehindTheHeadHaveNoMoreTogetherThanItLeaves) {
  const DeviceState device = With({Running(1, 5 * kGiB), Running(8, 2 * kGiB)});
  const QueuedJob head = Job("head", 3, {6 * kGiB});
  EXPECT_THAT(Decide({head, Job("young", 9, {1})}, {device}, 0).placements, IsEmpty());
  const QueuedJob smaller = Job("smaller", 3, {5 * kGiB});
  EXPECT_THAT(Placed(Decide({smaller, Job("young", 9, {kGiB})}, {device}, 0)),
              ElementsAre("young on cpu:0"));
}

// The older one waits for cpu:0, its only device; the other device is anybody's.
TEST(PolicyTest, ADeviceThatTheHeadCannotUseIsFree) {
  const DeviceState small = {.name = "cpu:1", .capacity_bytes = 2 * kGiB};
  EXPECT_THAT(
      Placed(Decide({Job("older", 1, {8 * kGiB}), Job("younger", 2, {kGiB})}, {kBusy, small}, 0)),
      ElementsAre("younger on cpu:1"));
}

// They run one job at a time.
const DeviceState kCpu = {.name = "cpu:0", .capacity_bytes = 8 * kGiB, .max_jobs = 1};
const DeviceState kGpu0 = {
    .name = "gpu:0", .gpu = true, .capacity_bytes = 40 * kGiB, .max_jobs = 1};
const DeviceState kGpu1 = {
    .name = "gpu:1", .gpu = true, .capacity_bytes = 80 * kGiB, .max_jobs = 1};

// Of `small` bytes on each device that is named.
QueuedJob JobOn(const std::string& id, int64_t order, const std::vector<std::string>& devices) {
  QueuedJob job{.id = id, .order = order};
  for (const std::string& device : devices) job.plans[device] = {kGiB};
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
  job.plans = {{"cpu:0", {8 * kGiB, kGiB}}, {"gpu:0", {50 * kGiB, 30 * kGiB}}};
  const Decision decision = Decide({job}, {kCpu, kGpu0}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a on gpu:0"));
  EXPECT_EQ(decision.placements[0].plan, 1);
  job.plans["gpu:1"] = {50 * kGiB, 30 * kGiB};
  EXPECT_THAT(Placed(Decide({job}, {kCpu, kGpu0, kGpu1}, 0)), ElementsAre("a on gpu:1"));
}

// It fits no GPU, and one of them is busy anyway: the CPU is its only device, which a younger job
// leaves to it, while the free GPU is anybody's.
TEST(PolicyTest, AJobThatOnlyTheCpuHoldsWaitsForIt) {
  QueuedJob large{.id = "large", .order = 1};
  large.plans = {{"cpu:0", {7 * kGiB}}, {"gpu:0", {50 * kGiB}}};
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
  job.plans = {{"gpu:0", {30 * kGiB, 10 * kGiB}}};
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

// F-66: it waits as long as any, and then the clock is set back by a second.
TEST(PolicyTest, NoRetryIsWaitedForLongerBecauseTheClockIsSetBack) {
  QueuedJob retry = Job("retry", 1, {kGiB});
  retry.not_before_us = 720'000'000;
  const Decision decision = Decide({retry}, {kEmpty}, 0);
  EXPECT_EQ(decision.waiting.at("retry"), "tries again in 721 s");
  EXPECT_EQ(decision.next_us, 720'000'000);
  EXPECT_THAT(Placed(Decide({retry}, {kEmpty}, -1'000'000)), ElementsAre("retry on cpu:0"));
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

// A round over 10,000 jobs, of which one after the other is asked because a small device is free
// that none of them fits on: a group is asked once.
QueuedJob Of(const std::string& owner, int64_t share, QueuedJob job) {
  job.owner = owner;
  job.share_bytes = share;
  job.budget_bytes = std::min(job.budget_bytes, share);
  return job;
}

// a has 2 of its 4 GiB: its next job gets its smaller plan there, and the one behind that waits for
// the first two. It is nobody's head: b, which is younger, has all that the device has left.
TEST(PolicyTest, AnOwnerHasNoMoreThanHisShareAndHoldsNobodyUp) {
  DeviceState device = With({Running(0, 2 * kGiB)});
  device.running[0].owner = "a";
  const Decision decision =
      Decide({Of("a", 4 * kGiB, Job("a1", 1, {3 * kGiB, 2 * kGiB})),
              Of("a", 4 * kGiB, Job("a2", 2, {2 * kGiB})), Job("b", 3, {4 * kGiB})},
             {device}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("a1 on cpu:0", "b on cpu:0"));
  EXPECT_EQ(decision.placements[0].plan, 1);
  EXPECT_EQ(decision.head, "");
  EXPECT_EQ(decision.waiting.at("a2"),
            "waits for cpu:0: it needs 2 GiB; of its tenant's share, 4 GiB, 0 B are left");
}

// The share is of each device, and one that waits for a device is its head as any other.
TEST(PolicyTest, AShareIsOfEachDevice) {
  DeviceState other = kEmpty;
  other.name = "cpu:1";
  DeviceState full = With({Running(0, 4 * kGiB)});
  full.running[0].owner = "a";
  const QueuedJob job = Of("a", 4 * kGiB, Job("a1", 1, {4 * kGiB}));
  EXPECT_THAT(Placed(Decide({job}, {full, other}, 0)), ElementsAre("a1 on cpu:1"));
  other.reserved_bytes = 6 * kGiB;
  const Decision decision = Decide({job, Job("b", 2, {4 * kGiB})}, {full, other}, 0);
  EXPECT_EQ(decision.head, "a1");
  EXPECT_THAT(Placed(decision), ElementsAre("b on cpu:0"));
}

TEST(PolicyTest, AJobAboveItsOwnersShareFitsNowhere) {
  const QueuedJob job = Of("a", kGiB, Job("a1", 1, {2 * kGiB}));
  EXPECT_FALSE(CouldEverRun(job, {kEmpty}));
  EXPECT_THAT(Decide({job}, {kEmpty}, 0).infeasible, ElementsAre("a1"));
}

// What holds for one owner's job does not for another's with equal plans.
TEST(JobQueueTest, JobsOfDifferentOwnersAreNoGroup) {
  DeviceState device = With({Running(0, 4 * kGiB)});
  device.running[0].owner = "a";
  const Decision decision =
      Decide({Of("a", 4 * kGiB, Job("a1", 1, {kGiB})), Of("b", 4 * kGiB, Job("b1", 2, {kGiB}))},
             {device}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("b1 on cpu:0"));
}

// F-59
TEST(JobQueueTest, ALongQueueIsOneRound) {
  JobQueue queue;
  for (int i = 0; i < 10'000; ++i) {
    QueuedJob job = Job("job-" + std::to_string(i), i, {6 * kGiB});
    job.budget_bytes = 7 * kGiB + i % 10;  // Ten groups.
    queue.Put(std::move(job));
  }
  const DeviceState small = {.name = "cpu:1", .capacity_bytes = 2 * kGiB};
  EXPECT_THAT(Decide(queue, {kBusy, small}, 0).placements, IsEmpty());
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
  ledger.Restore("GPU-b", "survivor", {7});
  ledger.Restore("GPU-c", "stray", {5});
  ledger.Restore("gpu:1", "old", {2});
  EXPECT_EQ(ledger.ReservedOn("gpu:0"), 7);
  EXPECT_EQ(ledger.Snapshot().at(1).reserved_bytes, 7);
  EXPECT_EQ(ledger.Snapshot().at(1).jobs, 1);
  EXPECT_EQ(ledger.JobsOn("gpu:0"), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Reserve("gpu:0", "new", {4})));
  EXPECT_EQ(ledger.ReservedOn("GPU-a"), 2);
  EXPECT_TRUE(ledger.Reserve("gpu:1", "new", {8}).ok());
  EXPECT_THAT(ledger.Elsewhere(), ElementsAre(testing::Pair("GPU-c", 5)));
}

TEST(LedgerTest, PromisesNeverExceedTheCapacity) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10}});
  EXPECT_TRUE(ledger.Reserve("cpu:0", "a", {6}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Reserve("cpu:0", "b", {5})));
  EXPECT_TRUE(ledger.Reserve("cpu:0", "b", {4}).ok());
  EXPECT_FALSE(ledger.Reserve("cpu:0", "b", {0}).ok());
  ledger.Release("a");
  EXPECT_EQ(ledger.ReservedOn("cpu:0"), 4);
  EXPECT_TRUE(absl::IsNotFound(ledger.Reserve("gpu:0", "c", {1})));
}

// The host's memory is one for all devices.
TEST(LedgerTest, PromisesOfTheHostsMemoryNeverExceedIt) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10}, {.name = "gpu:0", .capacity_bytes = 10}},
                /*host_bytes=*/20);
  EXPECT_TRUE(ledger.Reserve("cpu:0", "a", {.bytes = 1, .host_bytes = 15}).ok());
  EXPECT_TRUE(
      absl::IsResourceExhausted(ledger.Reserve("gpu:0", "b", {.bytes = 1, .host_bytes = 6})));
  EXPECT_TRUE(ledger.Reserve("gpu:0", "b", {.bytes = 1, .host_bytes = 5}).ok());
  EXPECT_EQ(ledger.Snapshot().at(0).host_free_bytes, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Resize("b", 1, 6)));
  EXPECT_TRUE(ledger.Resize("a", 1, 14).ok());
  EXPECT_TRUE(ledger.Resize("b", 1, 6).ok());
  ledger.Release("a");
  EXPECT_EQ(ledger.HostReserved(), 6);
}

// Who waits for the host's memory has its own reason, lets others by that need none of it, and none
// that do.
TEST(PolicyTest, TheHostsMemoryIsKeptForTheFirstThatNeedsIt) {
  std::vector<DeviceState> devices = {{.name = "cpu:0", .capacity_bytes = 100}};
  devices[0].host_capacity_bytes = 50;
  devices[0].host_free_bytes = 20;
  const auto job = [](const char* id, int64_t order, int64_t host) {
    return QueuedJob{.id = id, .order = order, .plans = {{"cpu:0", {PlanNeeds(10, 1, host)}}}};
  };
  const Decision decision =
      Decide({job("large", 1, 30), job("small", 2, 5), job("none", 3, 0), job("never", 4, 51)},
             devices, /*now_us=*/0);
  ASSERT_EQ(decision.placements.size(), 1u);
  EXPECT_EQ(decision.placements[0].job, "none");
  EXPECT_EQ(decision.head, "large");
  EXPECT_THAT(decision.waiting.at("large"),
              testing::HasSubstr("of the host's memory than the 20 B that"));
  EXPECT_THAT(decision.infeasible, ElementsAre("never"));
}

// The room that is kept for who waits first is that of a plan of the device alone, where one fits:
// nobody keeps the host's memory for the other.
TEST(PolicyTest, WhoCanDoWithoutTheHostIsKeptRoomToDoSo) {
  std::vector<DeviceState> devices = {{.name = "gpu:0", .capacity_bytes = 100}};
  devices[0].host_capacity_bytes = 50;
  const QueuedJob either{.plans = {{"gpu:0", {PlanNeeds(60, 1), PlanNeeds(20, 1, 40)}}}};
  EXPECT_EQ(LeastOn(either, devices[0]), 60);
  const QueuedJob host_alone{.plans = {{"gpu:0", {PlanNeeds(200, 1), PlanNeeds(20, 1, 40)}}}};
  EXPECT_EQ(LeastOn(host_alone, devices[0]), 20);
  const QueuedJob too_much{.plans = {{"gpu:0", {PlanNeeds(200, 1), PlanNeeds(20, 1, 60)}}}};
  EXPECT_EQ(LeastOn(too_much, devices[0]), -1);
}

// Each device keeps its own account.
TEST(LedgerTest, DevicesDoNotShareTheirBytes) {
  Ledger ledger({{.name = "cpu:0", .capacity_bytes = 10},
                 {.name = "gpu:0", .capacity_bytes = 5},
                 {.name = "gpu:1", .capacity_bytes = 7}});
  EXPECT_TRUE(ledger.Reserve("gpu:0", "a", {5}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ledger.Reserve("gpu:0", "b", {1})));
  EXPECT_TRUE(ledger.Reserve("gpu:1", "b", {6}).ok());
  EXPECT_TRUE(ledger.Reserve("cpu:0", "c", {10}).ok());
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
  ledger.Restore("cpu:0", "a", {12});
  EXPECT_EQ(ledger.ReservedOn("cpu:0"), 12);
  EXPECT_FALSE(ledger.Reserve("cpu:0", "b", {1}).ok());
  EXPECT_EQ(ledger.Snapshot().at(0).jobs, 1);
}

}  // namespace
}  // namespace snug::server
