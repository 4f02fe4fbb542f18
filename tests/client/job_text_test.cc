#include "client/job_text.h"

#include <sstream>

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

std::string Printed(const v1::Job& job) {
  std::ostringstream out;
  PrintJob(job, absl::UTCTimeZone(), out);
  return out.str();
}

TEST(JobTextTest, AJobThatWaitsSaysWhy) {
  EXPECT_EQ(Printed(FromText(R"(
    id: "k3f" display_name: "answers" state: STATE_QUEUED reason: "waits for cpu:0, where abc runs"
    spec { model: "/m" dataset: "/d.jsonl" method: METHOD_LORA }
    create_time { seconds: 1700000000 })")),
            "job        k3f\n"
            "name       answers\n"
            "state      QUEUED: waits for cpu:0, where abc runs\n"
            "model      /m\n"
            "method     lora\n"
            "dataset    /d.jsonl\n"
            "created    2023-11-14 22:13:20\n");
}

TEST(JobTextTest, AJobThatCouldNotBeMergedSaysWhy) {
  EXPECT_THAT(Printed(FromText(R"(
    id: "k3f" state: STATE_SUCCEEDED
    output { loss: 2.5 merge_error: "lm_head.weight is infinite" })")),
              testing::HasSubstr("loss 2.500000 when read again, not merged: lm_head.weight is"));
}

TEST(JobTextTest, AJobThatRunsShowsProgressAndMemory) {
  EXPECT_EQ(Printed(FromText(R"(
    id: "k3f" display_name: "answers" state: STATE_RUNNING
    progress { global_step: 12 max_steps: 400 loss: 2.34567 eval_loss: 2.5
               eval_metrics { key: "eval_f1" value: 0.75 }
               tokens_per_second: 1234.4 resumed_from_step: 10 }
    memory { plan: "recompute 2 of 8" predicted_peak_bytes: 1181116006 budget_bytes: 1288490188
             measured_peak_bytes: 1073741824 }
    device: "cpu:0" epoch: 2 worker_pid: 77
    dataset { rows: 1000 tokens: 20000 trained_tokens: 9000 longest_row_tokens: 64
              truncated_rows: 3 duplicate_rows: 7 untrained_rows: 1 format: "messages"
              chat_template: "chat_template.jinja" end_of_turn: "<|im_end|>"
              warnings: "half of the rows lack a stop token" }
    spec { dataset: "/d.jsonl" method: METHOD_FULL })")),
            "job        k3f\n"
            "name       answers\n"
            "state      RUNNING\n"
            "progress   step 12 of 400, loss 2.3457, eval loss 2.5000, f1 0.7500, 1234 tokens/s, "
            "resumed from step 10\n"
            "memory     plan \"recompute 2 of 8\", predicted peak 1.1 GiB, reserved 1.2 GiB, "
            "measured peak 1 GiB\n"
            "device     cpu:0, attempt 2, process 77\n"
            "method     full\n"
            "dataset    /d.jsonl: 1000 rows, 20000 tokens (45.0 % trained), longest row 64, 3 cut "
            "off, 7 duplicates, 1 left out\n"
            "format     messages, chat template chat_template.jinja, answers end with <|im_end|>\n"
            "warning    half of the rows lack a stop token\n");
}

TEST(JobTextTest, AJobOnAGpuShowsWhatItsProcessHolds) {
  EXPECT_THAT(Printed(FromText(R"(
    id: "k3f" state: STATE_RUNNING device: "gpu:0" epoch: 1
    memory { plan: "keep" predicted_peak_bytes: 2147483648 budget_bytes: 2147483648
             measured_peak_bytes: 1073741824 process_peak_bytes: 1610612736 })")),
              testing::HasSubstr("measured peak 1 GiB (of its process, from outside, "
                                 "1.5 GiB)\n"));
}

// Where the driver does not tell, what the worker has seen itself.
TEST(JobTextTest, WhatNobodyCountedIsAWarning) {
  const std::string text = Printed(FromText(R"(
    id: "k3f" state: STATE_RUNNING device: "gpu:0" epoch: 1
    memory { plan: "keep" predicted_peak_bytes: 2147483648 budget_bytes: 2147483648
             measured_peak_bytes: 2147483648 warning: "its process has too much"
             looks { counted_bytes: 2147483648 seen_bytes: 2147483648 }
             looks { steps: 1 counted_bytes: 2147483648 seen_bytes: 3221225472 } })"));
  EXPECT_THAT(text, testing::HasSubstr("measured peak 2 GiB (seen by its worker, 3 GiB)\n"
                                       "warning    its process has too much\n"));
}

// On a GPU it is below 0 where neighbours have given back more than the worker took.
TEST(JobTextTest, WhereNothingWasSeenNothingIsSaid) {
  for (const int64_t seen : {0, -1}) {
    v1::Job job = FromText(R"(id: "k3f" state: STATE_RUNNING
                              memory { plan: "keep" measured_peak_bytes: 2147483648 looks {} })");
    job.mutable_memory()->mutable_looks(0)->set_seen_bytes(seen);
    EXPECT_THAT(Printed(job), testing::HasSubstr("measured peak 2 GiB\n"));
  }
}

TEST(JobTextTest, ADriftIsShownByKindOrWhyThereIsNone) {
  v1::Job job = FromText(R"(
    id: "k3f" state: STATE_RUNNING
    drift { key: "int8"
            value { cosine: 0.99991 relative_error: 0.0132 global_step: 2 tokens: 512 } }
    drift { key: "int4" value { cosine: 0.9 relative_error: 0.41 global_step: 202 tokens: 64 } })");
  EXPECT_THAT(Printed(job),
              testing::HasSubstr(
                  "drift      int4 cosine 0.9000, relative error 0.41 (step 202, 64 tokens); "
                  "int8 cosine 0.9999, relative error 0.013 (step 2, 512 tokens)\n"));
  job.clear_drift();
  job.set_drift_not_measured("memory.gradients: released");
  EXPECT_THAT(Printed(job),
              testing::HasSubstr("drift      not measured: memory.gradients: released\n"));
  job.clear_drift_not_measured();
  EXPECT_THAT(Printed(job), testing::Not(testing::HasSubstr("drift")));
}

TEST(JobTextTest, ThePredictedTimeStandsBesideTheCorrectedOne) {
  v1::Job job = FromText(R"(id: "k3f" state: STATE_RUNNING step_time { predicted_seconds: 0.5 })");
  EXPECT_THAT(Printed(job), testing::HasSubstr("time       predicted 0.5 s a step\n"));
  job.mutable_step_time()->set_corrected_seconds(0.98765);
  EXPECT_THAT(Printed(job), testing::HasSubstr("s a step, by its own steps 0.988 s\n"));
  job.mutable_step_time()->set_alone_seconds(0.51);
  EXPECT_THAT(Printed(job), testing::HasSubstr(" 0.988 s, alone 0.51 s\n"));
  job.mutable_step_time()->set_slowdown(1.8125);
  EXPECT_THAT(
      Printed(job),
      testing::HasSubstr(" alone 0.51 s; beside others 1.81 times its fair share of time\n"));
}

TEST(JobTextTest, AJobThatLeftADeviceForAnotherSaysWhy) {
  v1::Job job = FromText(R"(id: "k3f" state: STATE_QUEUED displacement { reason: "slows b" })");
  EXPECT_THAT(Printed(job), testing::Not(testing::HasSubstr("put back")));
  job.mutable_displacement()->set_count(1);
  EXPECT_THAT(Printed(job), testing::HasSubstr("put back   1 time, at last because it slows b\n"));
  job.mutable_displacement()->set_count(2);
  EXPECT_THAT(Printed(job), testing::HasSubstr("put back   2 times, at last because it slows b\n"));
}

TEST(JobTextTest, AJobThatFailedShowsItsError) {
  EXPECT_EQ(Printed(FromText(R"(
    id: "a" display_name: "n" state: STATE_FAILED
    error { reason: "BAD_DATASET" message: "line 12: no labels" field: "spec.dataset" })")),
            "job        a\n"
            "name       n\n"
            "state      FAILED\n"
            "error      BAD_DATASET: line 12: no labels (dataset)\n");
}

TEST(JobTextTest, Durations) {
  EXPECT_EQ(DurationText(absl::Seconds(12.4)), "12s");
  EXPECT_EQ(DurationText(absl::Seconds(59.6)), "1m00s");
  EXPECT_EQ(DurationText(absl::Seconds(123)), "2m03s");
  EXPECT_EQ(DurationText(absl::Hours(25)), "1d01h");
  EXPECT_EQ(DurationText(absl::Minutes(62)), "1h02m");
}

}  // namespace
}  // namespace snug::client
