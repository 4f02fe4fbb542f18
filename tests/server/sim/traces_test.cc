// Reading the three formats, drawing traces, and the planner's own frontiers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "server/sim/generate.h"
#include "server/sim/job_classes.h"
#include "server/sim/read_trace.h"
#include "server/sim/report.h"
#include "tests/server/sim/worlds.h"

namespace snug::server::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Trace> Read(const std::string& name) {
  return ReadTrace(std::string(std::getenv("SNUG_SOURCE_DIR")) + "/tests/server/sim/data/" + name);
}

std::vector<int64_t> Lengths(const Trace& trace) {
  std::vector<int64_t> seconds;
  for (const Arrival& each : trace.arrivals) seconds.push_back(each.work_us / kSecond);
  return seconds;
}

// Two attempts add up; no attempt, or no end, is no job here.
TEST(ReadTraceTest, Philly) {
  const auto trace = Read("philly.json");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->format, "philly");
  EXPECT_THAT(Lengths(*trace), ElementsAre(3660, 30));
  EXPECT_EQ(trace->left_out, 2);
  EXPECT_EQ(trace->arrivals[1].arrives_us - trace->arrivals[0].arrives_us, 24 * 3600 * kSecond);
}

TEST(ReadTraceTest, Helios) {
  const auto trace = Read("helios.csv");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->format, "helios");
  EXPECT_THAT(Lengths(*trace), ElementsAre(3600, 6));
  EXPECT_EQ(trace->left_out, 2);
  EXPECT_EQ(trace->arrivals[1].arrives_us - trace->arrivals[0].arrives_us, 60 * kSecond);
}

TEST(ReadTraceTest, Pai) {
  const auto trace = Read("pai.csv");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->format, "pai");
  EXPECT_THAT(Lengths(*trace), ElementsAre(38, 600));
  EXPECT_EQ(trace->left_out, 2);
  EXPECT_EQ(trace->arrivals[0].utilisation, 0.5);
  EXPECT_EQ(trace->arrivals[1].utilisation, 0.0);  // A whole one: not known.
}

TEST(ReadTraceTest, WhatIsNoTraceIsRefused) {
  const auto error = [](const std::string& text) {
    return std::string(ParseTrace(text).status().message());
  };
  EXPECT_THAT(error("[1]"), HasSubstr("job 1 has no jobid"));
  EXPECT_THAT(error("[{\"jobid\": \"a\", \"attempts\": [7]}]"), HasSubstr("there is no job"));
  EXPECT_THAT(error("[{"), HasSubstr("not a JSON list"));
  EXPECT_THAT(error("job_id,submit_time,duration\n"), HasSubstr("there is no job"));
  EXPECT_THAT(error("job_id,submit_time\n1,2\n"), HasSubstr("no column gpu_num"));
  EXPECT_THAT(error("a,b,c\n"), HasSubstr("line 1 has 3 cells; there are 10"));
  EXPECT_THAT(error(""), HasSubstr("there is no job"));
  const std::string row = "j,t,1,Terminated,0,5,1,1,100,V100\n";
  EXPECT_THAT(error(row + row), HasSubstr("job j/t is there twice"));
}

TEST(GenerateTest, LoadAndLengthsAreAsAsked) {
  auto arrivals = Generate({.name = "helios", .jobs = 20000}, 7).value();
  StretchTo(0.9, 8, arrivals);
  std::vector<double> lengths;
  double work_s = 0.0;
  for (const Arrival& each : arrivals) {
    lengths.push_back(static_cast<double>(each.work_us) * 1e-6);
    work_s += lengths.back();
  }
  EXPECT_NEAR(work_s / 8 / (static_cast<double>(arrivals.back().arrives_us) * 1e-6), 0.9, 1e-3);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_NEAR(Quantile(lengths, 0.5), 206.0, 15.0);
  StretchTo(0.0, 8, arrivals);
  EXPECT_EQ(arrivals.back().arrives_us, 0);
}

TEST(GenerateTest, SpecsAreRead) {
  const auto spec = ParseGenerateSpec("pai:jobs=12,load=0.5");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->jobs, 12);
  EXPECT_EQ(spec->load, 0.5);
  for (const char* bad : {"", "venus", "pai:", "pai:jobs=0", "pai:jobs=1;load=2", "pai:load=nan"})
    EXPECT_FALSE(ParseGenerateSpec(bad).ok()) << bad;
}

// The planner's own, for an H100: fastest first, the smallest well below the fastest, each class
// within a device.
TEST(JobClassesTest, FrontiersAreOfThePlanner) {
  const DeviceKind* h100 = nullptr;
  for (const DeviceKind& kind : GpuKinds())
    if (std::string("h100") == kind.name) h100 = &kind;
  ASSERT_NE(h100, nullptr);
  const int64_t capacity = h100->total_bytes - kGpuReserveBytes;
  const auto classes = PlanClasses(*h100, capacity);
  ASSERT_TRUE(classes.ok()) << classes.status();
  for (const JobClass& each : *classes) {
    const std::vector<PlanOption>& plans = *each.plans;
    ASSERT_GE(plans.size(), 2u) << each.name;
    int64_t smallest = plans.front().bytes;
    for (size_t i = 1; i < plans.size(); ++i) {
      EXPECT_GE(plans[i].seconds, plans[i - 1].seconds) << each.name;
      smallest = std::min(smallest, plans[i].bytes);
    }
    EXPECT_GT(plans.front().seconds, 0.0) << each.name;
    EXPECT_LT(smallest, plans.front().bytes * 9 / 10) << each.name;
    EXPECT_LT(smallest, capacity) << each.name;
  }
}

// 2,000 jobs, from the generator to the report, the same again and again; and 10 jobs.
TEST(SimTest, ATraceReplaysBitForBit) {
  const std::vector<JobClass> classes = {{"one", 1.0,
                                          std::make_shared<const std::vector<PlanOption>>(
                                              std::vector<PlanOption>{{400, 1.0}, {250, 1.2}})}};
  const auto report = [&](int64_t count, uint64_t seed) {
    auto arrivals = Generate({.name = "pai", .jobs = count}, seed).value();
    StretchTo(0.9, 4, arrivals);
    const auto policy = PolicyNamed("snug", {}).value();
    Simulation simulation(JobsOf(arrivals, classes, "pai", seed), DevicesOf(4, 1000), *policy, {});
    return ToJson({.policy = "snug", .seed = seed, .outcome = simulation.Run().value()});
  };
  EXPECT_EQ(report(2000, 3), report(2000, 3));
  EXPECT_NE(report(2000, 3), report(2000, 4));
  EXPECT_THAT(report(10, 1), HasSubstr("\"ended\":10,"));
}

}  // namespace
}  // namespace snug::server::sim
