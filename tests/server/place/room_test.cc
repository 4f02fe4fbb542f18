// Devices on which a job bears only so many others beside it.
#include "server/place/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/place/decisions.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kReason =
    "waits for cpu:0: a job that is ahead of it there would be slowed more than it allows";

// 8 GiB, on which job 5 of the order runs and one more for each of `beside`; it bears `bears`.
DeviceState Bearing(int bears, const std::vector<int64_t>& beside = {}) {
  DeviceState device{.name = "cpu:0", .capacity_bytes = 8 * kGiB};
  device.running.push_back({.key = {0, 5, "slowed"}, .bytes = kGiB, .bears = bears});
  for (const int64_t order : beside)
    device.running.push_back({.key = {0, order, "other"}, .bytes = kGiB});
  device.jobs = static_cast<int>(device.running.size());
  device.reserved_bytes = device.jobs * kGiB;
  return device;
}

TEST(KeptOffTest, WhoIsBehindAJobWaitsWhereItBearsNobodyMore) {
  const Decision decision = Decide({Job("behind", 9, {kGiB})}, {Bearing(0)}, 0);
  EXPECT_THAT(decision.placements, IsEmpty());
  EXPECT_EQ(decision.waiting.at("behind"), kReason);
  EXPECT_THAT(decision.infeasible, IsEmpty());
}

TEST(KeptOffTest, WhoIsAheadOfItIsNotKeptOff) {
  EXPECT_THAT(Placed(Decide({Job("ahead", 2, {kGiB})}, {Bearing(0)}, 0)),
              ElementsAre("ahead on cpu:0"));
  QueuedJob urgent = Job("urgent", 9, {kGiB});
  urgent.priority = 1;
  EXPECT_THAT(Placed(Decide({urgent}, {Bearing(0)}, 0)), ElementsAre("urgent on cpu:0"));
}

// Two, of which one is there: the next one comes, the one behind that does not.
TEST(KeptOffTest, AsManyComeAsItBears) {
  const Decision decision =
      Decide({Job("b", 8, {kGiB}), Job("c", 9, {kGiB})}, {Bearing(2, {7})}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("b on cpu:0"));
  EXPECT_EQ(decision.waiting.at("c"), kReason);
  EXPECT_THAT(Placed(Decide({Job("b", 8, {kGiB})}, {Bearing(1)}, 0)), ElementsAre("b on cpu:0"));
  EXPECT_THAT(Decide({Job("b", 8, {kGiB})}, {Bearing(1, {7})}, 0).placements, IsEmpty());
}

TEST(KeptOffTest, ItGoesToAnotherDeviceThatHasRoom) {
  const DeviceState other = {.name = "cpu:1", .capacity_bytes = 8 * kGiB};
  EXPECT_THAT(Placed(Decide({Job("behind", 9, {kGiB})}, {Bearing(0), other}, 0)),
              ElementsAre("behind on cpu:1"));
}

// It waits for no room, so nothing is kept for it: one with a small plan that comes later has a
// device which is none of its own.
TEST(KeptOffTest, WhoIsKeptOffEverywhereHoldsNobodyUp) {
  DeviceState other = {.name = "cpu:1", .capacity_bytes = 2 * kGiB};
  QueuedJob behind = Job("behind", 8, {4 * kGiB});
  const Decision decision = Decide({behind, Job("later", 9, {kGiB})}, {Bearing(0), other}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("later on cpu:1"));
  EXPECT_EQ(decision.head, "");
  EXPECT_EQ(decision.waiting.at("behind"), kReason);
}

// Kept off one device, it waits for room on the other as any job, which is kept for it.
TEST(KeptOffTest, WhoHasAnotherDeviceIsTheHeadThere) {
  DeviceState other = {.name = "cpu:1", .capacity_bytes = 4 * kGiB, .reserved_bytes = 2 * kGiB};
  const Decision decision =
      Decide({Job("behind", 8, {4 * kGiB}), Job("later", 9, {kGiB})}, {Bearing(0), other}, 0);
  EXPECT_THAT(decision.placements, IsEmpty());
  EXPECT_EQ(decision.head, "behind");
}

// A loan, or a worker that exports: alike jobs that train stay away.
TEST(KeptOffTest, WhoMakesNoStepsIsNotKeptOff) {
  QueuedJob answers = Job("answers", 9, {kGiB});
  answers.no_steps = true;
  const Decision decision = Decide({Job("behind", 8, {kGiB}), answers}, {Bearing(0)}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("answers on cpu:0"));
  EXPECT_EQ(decision.waiting.at("behind"), kReason);
}

// Among alike jobs one is ahead of the job that runs, and one behind it.
TEST(KeptOffTest, AlikeJobsAreKeptOffEachForItself) {
  const std::vector<QueuedJob> jobs = {Job("ahead", 2, {kGiB}), Job("behind", 9, {kGiB})};
  const Decision decision = Decide(jobs, {Bearing(0)}, 0);
  EXPECT_THAT(Placed(decision), ElementsAre("ahead on cpu:0"));
  EXPECT_EQ(decision.waiting.at("behind"), kReason);
}

}  // namespace
}  // namespace snug::server
