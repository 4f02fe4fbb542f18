#include "client/progress.h"

#include <sstream>

#include "client/sparkline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

v1::Job Running(int64_t step) {
  v1::Job job;
  job.set_id("abc");
  job.set_state(v1::Job::STATE_RUNNING);
  v1::Progress& progress = *job.mutable_progress();
  progress.set_global_step(step);
  progress.set_max_steps(100);
  progress.set_loss(2.5);
  progress.set_tokens_per_second(1000.4);
  progress.set_step_seconds(2);
  job.mutable_memory()->set_budget_bytes(4096);
  job.mutable_memory()->set_measured_peak_bytes(2048);
  return job;
}

class ProgressTest : public ::testing::Test {
 protected:
  absl::Time At(double seconds) const {
    return absl::FromUnixSeconds(1000) + absl::Seconds(seconds);
  }

  std::ostringstream out_, err_;
  Terminal lines_{.out = out_, .err = err_};
  Terminal tty_{.out = out_, .err = err_, .is_tty = true};
};

TEST_F(ProgressTest, TimeLeftFollowsThePaceThatWasSeen) {
  TimeLeft left;
  EXPECT_LT(left.Estimate(), absl::ZeroDuration());
  left.Add(Running(10).progress(), At(0));  // Its own 2 s are all that is known.
  EXPECT_EQ(left.Estimate(), absl::Seconds(180));
  left.Add(Running(10).progress(), At(9));  // The same step again says nothing new.
  EXPECT_EQ(left.Estimate(), absl::Seconds(180));
  left.Add(Running(20).progress(), At(30));  // Ten steps in 30 s.
  EXPECT_EQ(left.Estimate(), absl::Seconds(240));
  left.Add(Running(5).progress(), At(60));  // Resumed from a checkpoint.
  EXPECT_EQ(left.Estimate(), absl::Seconds(190));
  left.Add(Running(100).progress(), At(160));
  EXPECT_EQ(left.Estimate(), absl::ZeroDuration());
}

// Without a terminal: states as they change, steps at most once a second, the last one always.
TEST_F(ProgressTest, LinesForALog) {
  ProgressPrinter printer(lines_, {.columns = 80});
  v1::Job queued;
  queued.set_state(v1::Job::STATE_QUEUED);
  queued.set_reason("waits for cpu:0");
  printer.Show(queued, At(0));
  printer.Show(queued, At(1));
  printer.Show(Running(0), At(2));
  printer.Show(Running(1), At(3));
  printer.Show(Running(2), At(3.5));
  printer.Show(Running(3), At(4.1));
  printer.Show(Running(3), At(9));
  printer.Show(Running(100), At(9.1));
  EXPECT_EQ(out_.str(),
            "QUEUED: waits for cpu:0\n"
            "RUNNING\n"
            "step 1/100  loss 2.5000  1000 tokens/s  2 KiB of 4 KiB  3m18s left\n"
            "step 3/100  loss 2.5000  1000 tokens/s  2 KiB of 4 KiB  53s left\n"
            "step 100/100  loss 2.5000  1000 tokens/s  2 KiB of 4 KiB\n");
}

v1::Job Preparing(const std::string& how_far) {
  v1::Job job;
  job.set_state(v1::Job::STATE_PREPARING);
  job.set_reason("its dataset is being prepared: " + how_far);
  return job;
}

// Preparing is one line of a terminal, however often it says how far it is.
TEST_F(ProgressTest, PreparingIsDrawnOverOnATerminal) {
  ProgressPrinter printer(tty_, {.columns = 80});
  printer.Show(Preparing("500 of 2000 rows, 3 s left"), At(0));
  printer.Show(Preparing("500 of 2000 rows, 3 s left"), At(0.5));
  printer.Show(Preparing("1500 of 2000 rows, 1 s left"), At(2));
  v1::Job queued;
  queued.set_state(v1::Job::STATE_QUEUED);
  queued.set_reason("waits for cpu:0");
  printer.Show(queued, At(3));
  printer.Show(Running(0), At(4));
  EXPECT_EQ(out_.str(),
            "\rPREPARING: its dataset is being prepared: 500 of 2000 rows, 3 s left\033[K"
            "\rPREPARING: its dataset is being prepared: 1500 of 2000 rows, 1 s left\033[K\n"
            "\rQUEUED: waits for cpu:0\033[K\nRUNNING\n");
}

// A line that went on in the next one could not be drawn over.
TEST_F(ProgressTest, PreparingIsCutAtATerminalsWidth) {
  ProgressPrinter printer(tty_, {.columns = 21});
  printer.Show(Preparing("500 of 2000 rows"), At(0));
  EXPECT_EQ(out_.str(), "\rPREPARING: its datas\033[K");
}

TEST_F(ProgressTest, PreparingIsLinesForALog) {
  ProgressPrinter printer(lines_, {.columns = 21});
  printer.Show(Preparing("500 of 2000 rows, 3 s left"), At(0));
  printer.Show(Preparing("1500 of 2000 rows, 1 s left"), At(2));
  EXPECT_EQ(out_.str(),
            "PREPARING: its dataset is being prepared: 500 of 2000 rows, 3 s left\n"
            "PREPARING: its dataset is being prepared: 1500 of 2000 rows, 1 s left\n");
}

TEST_F(ProgressTest, ABarOnATerminalDrawnOver) {
  ProgressPrinter printer(tty_, {.columns = 110});
  printer.Show(Running(50), At(0));
  printer.FinishLine();
  EXPECT_EQ(out_.str(),
            "RUNNING\n"
            "\rstep 50/100  [###############...............]  loss 2.5000  1000 tokens/s  2 KiB of "
            "4 KiB  1m40s left\033[K\n");
}

TEST_F(ProgressTest, AWideTerminalShowsTheCourseOfTheLoss) {
  ProgressPrinter printer(tty_, {.columns = 140, .colour = true});
  printer.AddLosses({8, 6.5, 5});
  printer.Show(Running(50), At(0));
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("  \033[36m█▆▄▁\033[0m  loss 2.5000"));
  EXPECT_THAT(out_.str(), ::testing::HasSubstr("\r\033[1mstep 50/100\033[0m  \033[32m[###"));
}

TEST(SparklineTest, BlocksStandForMeansBetweenTheLowestAndTheHighest) {
  EXPECT_EQ(Sparkline({}, 10), "");
  EXPECT_EQ(Sparkline({1, 2}, 0), "");
  EXPECT_EQ(Sparkline({3, 3, 3}, 10), "▅▅▅");
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({0, 0, 7, 7}, 2), "▁█");
}

TEST_F(ProgressTest, ANarrowTerminalIsNeverOverrun) {
  ProgressPrinter printer(tty_, {.columns = 30});
  printer.Show(Running(50), At(0));
  EXPECT_EQ(out_.str(), "RUNNING\n\rstep 50/100  loss 2.5000  100\033[K");
}

TEST_F(ProgressTest, TheEndIsOneLineAndErrorsGoToStderr) {
  v1::Job job = Running(100);
  job.set_state(v1::Job::STATE_SUCCEEDED);
  job.mutable_start_time()->set_seconds(1000);
  job.mutable_end_time()->set_seconds(1123);
  job.mutable_memory()->set_predicted_peak_bytes(3072);
  PrintEnd(job, lines_);
  EXPECT_EQ(out_.str(),
            "SUCCEEDED at step 100 of 100 after 2m03s; peak memory 2 KiB, predicted 3 KiB\n"
            "fetch it with: snug download abc DIR\n");
  out_.str("");
  v1::Job failed;
  failed.set_id("abc");
  failed.set_state(v1::Job::STATE_FAILED);
  failed.mutable_error()->set_reason("NON_FINITE");
  failed.mutable_error()->set_message("loss is NaN at step 7");
  PrintEnd(failed, lines_);
  EXPECT_EQ(out_.str(), "FAILED\n");
  EXPECT_EQ(err_.str(),
            "snug: abc: NON_FINITE: loss is NaN at step 7\n"
            "snug: try learning_rate=2e-05 (it was 0.0002), warmup_ratio=0.03 (there was "
            "no warm-up), or look at the rows that are named: text that is broken or "
            "repeats itself\n");
}

TEST_F(ProgressTest, TheEndOfAJobThatWasKeptSaysHowToFetchIt) {
  v1::Job job;
  job.set_id("abc");
  job.set_state(v1::Job::STATE_CANCELLED);
  job.mutable_output()->set_loss(1.5);
  PrintEnd(job, lines_);
  EXPECT_EQ(out_.str(), "CANCELLED\nfetch it with: snug download abc DIR\n");
}

// A reason that only repeats the state is left out.
TEST_F(ProgressTest, TheEndSaysWhyWhenThereIsMoreToSay) {
  v1::Job job;
  job.set_state(v1::Job::STATE_CANCELLED);
  job.set_reason("cancelled");
  PrintEnd(job, lines_);
  job.set_reason("cancelled before it ran");
  PrintEnd(job, lines_);
  EXPECT_EQ(out_.str(), "CANCELLED\nCANCELLED; cancelled before it ran\n");
}

}  // namespace
}  // namespace snug::client
