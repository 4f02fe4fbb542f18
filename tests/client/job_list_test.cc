#include "client/job_list.h"

#include <sstream>

#include "absl/strings/str_split.h"
#include "client/table.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

v1::Job FromText(const char* text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

std::vector<v1::Job> Jobs() {
  return {FromText(R"(id: "abc" display_name: "first" state: STATE_RUNNING device: "cpu:0"
                      progress { global_step: 5 max_steps: 20 loss: 1.5 step_seconds: 3 }
                      memory { budget_bytes: 4096 measured_peak_bytes: 2048 plan: "keep" }
                      create_time { seconds: 1700000000 })"),
          FromText(R"(id: "d" display_name: "second job" state: STATE_QUEUED
                      reason: "waits for cpu:0, where abc runs"
                      create_time { seconds: 1700003500 })"),
          FromText(R"(id: "e" display_name: "third" state: STATE_FAILED reason: "failed"
                      progress { global_step: 2 max_steps: 20 loss: 1 step_seconds: 3 }
                      error { reason: "BAD_DATASET"
                              message: "line 12:\n  no labels\n  no text" })")};
}

std::string Printed(int columns) {
  std::ostringstream out;
  PrintJobs(Jobs(), {.now = absl::FromUnixSeconds(1700003600), .columns = columns}, out);
  return out.str();
}

TEST(JobListTest, EveryColumnWhereThereIsNoTerminal) {
  EXPECT_EQ(
      Printed(0),
      "JOB  NAME        STATE    STEP    LOSS          MEMORY  PLAN  DEVICE    AGE  LEFT  REASON\n"
      "abc  first       RUNNING  5/20  1.5000  2 KiB of 4 KiB  keep  cpu:0   1h00m   45s\n"
      "d    second job  QUEUED                                               1m40s        "
      "waits for cpu:0, where abc runs\n"
      "e    third       FAILED   2/20  1.0000                                             "
      "BAD_DATASET: line 12: no labels; no text\n");
}

// What is known from other columns goes first, then what is no reason to look at the list.
TEST(JobListTest, ATerminalIsNeverOverrun) {
  EXPECT_EQ(Printed(80),
            "JOB  STATE    STEP    LOSS  DEVICE    AGE  LEFT  REASON\n"
            "abc  RUNNING  5/20  1.5000  cpu:0   1h00m   45s\n"
            "d    QUEUED                         1m40s        waits for cpu:0, where abc runs\n"
            "e    FAILED   2/20  1.0000                       BAD_DATASET: line 12: no label…\n");
  EXPECT_THAT(Printed(70), testing::HasSubstr("waits for cpu:0, where abc r…\n"));
  for (int columns = 40; columns < 200; ++columns)
    for (const absl::string_view line : absl::StrSplit(Printed(columns), '\n'))
      EXPECT_LE(static_cast<int>(Width(line)), columns) << line;
}

// A reason of many lines, as a library's message may be, takes one line of a table.
TEST(JobListTest, AReasonIsOneLineWithAnEnd) {
  v1::Job job = FromText(R"(id: "a" state: STATE_QUEUED)");
  job.set_reason("\n one\x1b[2J\tand\r\n\n two\xC2\x9B" + std::string(300, 'x') + " end");
  std::ostringstream out;
  PrintJobs({job}, {.now = absl::FromUnixSeconds(0), .columns = 0}, out);
  const std::vector<std::string> lines = absl::StrSplit(out.str(), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], testing::EndsWith("  one [2J and; two " + std::string(182, 'x') + "…"));
}

TEST(JobListTest, TimeIsLeftToJobsThatRun) {
  EXPECT_EQ(TimeLeftOf(Jobs()[0]), absl::Seconds(45));
  EXPECT_LT(TimeLeftOf(Jobs()[1]), absl::ZeroDuration());
  EXPECT_LT(TimeLeftOf(Jobs()[2]), absl::ZeroDuration());
}

// Its last step may have been any.
TEST(JobListTest, TimeIsLeftByWhatAllItsLastStepsSay) {
  v1::Job job = Jobs()[0];
  job.mutable_step_time()->set_corrected_seconds(2);
  EXPECT_EQ(TimeLeftOf(job), absl::Seconds(30));
}

}  // namespace
}  // namespace snug::client
