#include "server/scheduler/reports.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace snug::server {
namespace {

v1::WorkerEvent::Step At(int64_t step) {
  v1::WorkerEvent::Step report;
  report.mutable_progress()->set_global_step(step);
  report.mutable_progress()->set_max_steps(100);
  return report;
}

TEST(ReportsTest, AStepWithinTheRunIsRight) {
  EXPECT_EQ(WrongWith(At(7), 6, 100), "");
  EXPECT_EQ(WrongWith(At(100), 100, 100), "");
}

// F-37
TEST(ReportsTest, AnAbsurdStepIsWrongWhetherTheRunIsKnownOrNot) {
  EXPECT_EQ(WrongWith(At(101), 6, 100), "step 101 of 100");
  EXPECT_EQ(WrongWith(At(int64_t{1} << 62), 6, 0), "step 4611686018427387904 of 1000000000");
  EXPECT_EQ(WrongWith(At(-1), -2, 100), "step -1 of 100");
  EXPECT_EQ(WrongWith(At(5), 6, 100), "step 5 after step 6");
}

TEST(ReportsTest, NumbersThatNobodyReachesAreWrong) {
  v1::WorkerEvent::Step step = At(7);
  step.mutable_progress()->set_num_tokens(std::numeric_limits<int64_t>::max());
  EXPECT_NE(WrongWith(step, 6, 100), "");
  step = At(7);
  step.mutable_progress()->set_loss(std::nan(""));
  EXPECT_EQ(WrongWith(step, 6, 100), "a number that is not finite");
  step = At(7);
  step.set_measured_peak_bytes(-1);
  EXPECT_EQ(WrongWith(step, 6, 100), "a peak of -1 bytes");
  step = At(7);
  step.mutable_progress()->set_max_steps(int64_t{1} << 40);
  EXPECT_EQ(WrongWith(step, 6, 100), "a run of 1099511627776 steps; it has 100");
}

// Its kinds become labels of series; the step that comes is measured before it is made.
TEST(ReportsTest, ADriftIsOfAnInexactKindAndBelievable) {
  v1::Drift good;
  good.set_cosine(0.5);
  good.set_relative_error(2.0);
  good.set_global_step(8);
  good.set_tokens(64);
  v1::WorkerEvent::Step step = At(7);
  (*step.mutable_drift())["int8"] = good;
  EXPECT_EQ(WrongWith(step, 6, 100), "");
  const auto wrong = [&](auto change) {
    change((*step.mutable_drift())["int8"] = good);
    return WrongWith(step, 6, 100);
  };
  EXPECT_EQ(wrong([](v1::Drift& drift) { drift.set_cosine(1.5); }),
            "a drift of int8 with cosine 1.5 and relative error 2, in step 8 on 64 tokens");
  EXPECT_NE(wrong([](v1::Drift& drift) { drift.set_cosine(std::nan("")); }), "");
  EXPECT_NE(wrong([](v1::Drift& drift) { drift.set_relative_error(-1.0); }), "");
  EXPECT_NE(wrong([](v1::Drift& drift) { drift.set_relative_error(HUGE_VAL); }), "");
  EXPECT_NE(wrong([](v1::Drift& drift) { drift.set_global_step(9); }), "");
  EXPECT_NE(wrong([](v1::Drift& drift) { drift.set_global_step(0); }), "");
  EXPECT_NE(wrong([](v1::Drift& drift) { drift.set_tokens(-1); }), "");
  for (const char* kind : {"recompute", "", "int8{"}) {
    step = At(7);
    (*step.mutable_drift())[kind] = good;
    EXPECT_EQ(WrongWith(step, 6, 100), "the drift of a kind that is none or exact") << kind;
  }
  step = At(7);
  step.set_drift_not_measured(std::string(1025, 'x'));
  EXPECT_EQ(WrongWith(step, 6, 100), "a reason of 1025 bytes, at most 1024");
}

// A GPU's others may have given back more than the worker has taken.
TEST(ReportsTest, LooksAtMemoryAreFewAndBelievable) {
  v1::WorkerEvent::Step step = At(7);
  v1::MemoryLook& look = *step.add_looks();
  look.set_counted_bytes(100);
  look.set_seen_bytes(-200);
  EXPECT_EQ(WrongWith(step, 6, 100), "");
  look.set_seen_bytes(int64_t{1} << 62);
  EXPECT_EQ(WrongWith(step, 6, 100),
            "a look at memory that counts 100 bytes and sees 4611686018427387904");
  look.set_seen_bytes(200);
  look.set_counted_bytes(-1);
  EXPECT_EQ(WrongWith(step, 6, 100), "a look at memory that counts -1 bytes and sees 200");
  look.set_counted_bytes(100);
  look.set_steps(-1);
  EXPECT_EQ(WrongWith(step, 6, 100), "a look at memory behind step -1");
  look.set_steps(0);
  for (int i = 0; i < 4; ++i) step.add_looks();
  EXPECT_EQ(WrongWith(step, 6, 100), "5 looks at memory, at most 4");
}

// Names come to be labels of series, and words in terminals.
TEST(ReportsTest, MetricsOfAnEvaluationHaveProperNamesAndAreFew) {
  v1::WorkerEvent::Step step = At(7);
  auto& metrics = *step.mutable_progress()->mutable_eval_metrics();
  metrics["eval_f1"] = 0.5;
  metrics["eval_rougeL"] = 0.5;
  EXPECT_EQ(WrongWith(step, 6, 100), "");
  metrics["eval_f1"] = std::nan("");
  EXPECT_EQ(WrongWith(step, 6, 100), "a number that is not finite");
  metrics = {};
  metrics["eval\033[2J"] = 1.0;
  EXPECT_EQ(WrongWith(step, 6, 100), "a metric of no proper name");
  metrics = {};
  for (int i = 0; i < 17; ++i) metrics["m" + std::to_string(i)] = 1.0;
  EXPECT_EQ(WrongWith(step, 6, 100), "17 metrics of an evaluation, at most 16");
}

// How it ended counts; its numbers do not.
TEST(ReportsTest, AnAbsurdResultLosesItsNumbers) {
  v1::WorkerResult result;
  result.set_outcome(v1::WorkerResult::OUTCOME_FAILED);
  result.mutable_progress()->set_global_step(int64_t{1} << 62);
  result.set_measured_peak_bytes(int64_t{1} << 62);
  DropAbsurd(result, 100);
  EXPECT_EQ(result.outcome(), v1::WorkerResult::OUTCOME_FAILED);
  EXPECT_FALSE(result.has_progress());
  EXPECT_EQ(result.measured_peak_bytes(), 0);
  result.mutable_progress()->set_global_step(50);
  result.mutable_progress()->set_loss(std::nan(""));
  DropAbsurd(result, 100);
  EXPECT_EQ(result.progress().global_step(), 50);
}

}  // namespace
}  // namespace snug::server
