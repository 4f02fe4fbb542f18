#include "client/top_screen.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A device of 100 bytes with two jobs, one of them another user's, and one job that waits.
TopView TwoJobs() {
  TopView view;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(devices {
           name: "cpu:0" model: "EPYC\033" capacity_bytes: 100 reserved_bytes: 80
           reservations { job: "mine" reserved_bytes: 50 predicted_bytes: 50 counted_bytes: 25 }
           reservations { reserved_bytes: 30 predicted_bytes: 20 counted_bytes: 20 }
         })",
      &view.server));
  v1::Job& job = view.running.emplace_back();
  job.set_id("mine");
  job.set_state(v1::Job::STATE_RUNNING);
  job.mutable_progress()->set_global_step(3);
  job.mutable_progress()->set_max_steps(9);
  job.mutable_progress()->set_loss(0.5);
  v1::Job& waits = view.waiting.emplace_back();
  waits.set_id("later");
  waits.set_state(v1::Job::STATE_QUEUED);
  waits.set_reason("waits for cpu:0");
  return view;
}

// 26 columns are what is beside a bar: each of its 20 cells is 5 bytes.
TEST(TopScreenTest, EachJobHasItsSharesAndItsLine) {
  const std::string unknown(30, ' ');  // State and progress of a job that is another's.
  EXPECT_THAT(
      TopLines(TwoJobs(), {.columns = 46}),
      ElementsAre("cpu:0  EPYC?  80 B of 100 B reserved", "  predicted [aaaaaaaaaabbbb      ] 70 B",
                  "  actual    [aaaaabbbb           ] 45 B",
                  "   JOB               STATE    STEP    LOSS  PREDICTED  ACTUAL  RESERVED",
                  "a  mine              RUNNING   3/9  0.5000       50 B    25 B      50 B",
                  "b  (another user's)" + unknown + "20 B    20 B      30 B", "", "1 job waits",
                  "PRIORITY  JOB    STATE   WHY", "       0  later  QUEUED  waits for cpu:0"));
}

TEST(TopScreenTest, NoLineIsLongerThanTheScreen) {
  for (const std::string& line : TopLines(TwoJobs(), {.columns = 46, .rows = 24}))
    EXPECT_LE(line.size(), 46u) << line;
}

TEST(TopScreenTest, WhatDoesNotFitIsCounted) {
  const std::vector<std::string> lines = TopLines(TwoJobs(), {.columns = 46, .rows = 4});
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines.back(), "... and 7 lines more");
  EXPECT_EQ(TopLines(TwoJobs(), {.columns = 46, .rows = 10}).size(), 10u);
}

TEST(TopScreenTest, ColoursTellJobsApart) {
  const auto lines = TopLines(TwoJobs(), {.columns = 46, .colour = true});
  EXPECT_THAT(lines[2], HasSubstr("[\033[36maaaaa\033[0m\033[33mbbbb\033[0m "));
}

// More than was promised is not drawn outside of the bar, and said in bytes.
TEST(TopScreenTest, ABarIsNeverLongerThanItsDevice) {
  TopView view = TwoJobs();
  view.server.mutable_devices(0)->mutable_reservations(1)->set_counted_bytes(500);
  EXPECT_EQ(TopLines(view, {.columns = 46})[2], "  actual    [aaaaabbbbbbbbbbbbbbb] 525 B");
}

TEST(TopScreenTest, AnEmptyServiceSaysSo) {
  TopView view;
  EXPECT_THAT(TopLines(view, {}), ElementsAre("no job waits"));
  view.waiting.resize(2);
  view.more_waiting = true;
  EXPECT_EQ(TopLines(view, {}).front(), "2 jobs and more wait");
}

TEST(TopScreenTest, ALineIsCutBetweenCharacters) {
  TopView view = TwoJobs();
  view.waiting[0].set_reason("\xC3\xA9\xC3\xA9\xC3\xA9");  // Three letters of two bytes.
  EXPECT_EQ(TopLines(view, {.columns = 28, .rows = 24}).back(),
            "       0  later  QUEUED  \xC3\xA9\xC3\xA9\xC3\xA9");
  EXPECT_EQ(TopLines(view, {.columns = 26, .rows = 24}).back(),
            "       0  later  QUEUED  \xC3\xA9");
}

}  // namespace
}  // namespace snug::client
