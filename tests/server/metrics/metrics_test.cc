#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace snug::server {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::Job Running(const std::string& id) {
  v1::Job job;
  job.set_id(id);
  job.set_device("cpu:0");
  job.mutable_progress()->set_global_step(3);
  job.mutable_progress()->set_loss(0.5);
  job.mutable_memory()->set_predicted_peak_bytes(100);
  job.mutable_memory()->set_measured_peak_bytes(90);
  return job;
}

TEST(MetricsTest, LabelsHoldNothingThatBlindsAScrape) {
  EXPECT_EQ(SanitizeLabel("a-b_c.d:e/f"), "a-b_c.d:e/f");
  EXPECT_EQ(SanitizeLabel("a\xff\n\"b"), "a___b");
  EXPECT_EQ(SanitizeLabel(std::string(300, 'x')).size(), 64u);
}

TEST(MetricsTest, StatesExistBeforeTheFirstJob) {
  Metrics metrics;
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_jobs{state=\"RUNNING\"} 0"));
  metrics.CountJobs(v1::Job::RUNNING, 1);
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_jobs{state=\"RUNNING\"} 1"));
}

TEST(MetricsTest, SeriesOfAJobGoWithIt) {
  Metrics metrics;
  metrics.Job(Running("a"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_job_step{device=\"cpu:0\",job=\"a\"} 3"));
  metrics.ForgetJob("a");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("job=\"a\"")));
}

// A NaN in a histogram's sum would stay there for ever.
TEST(MetricsTest, NumbersThatAreNotFiniteAreDropped) {
  Metrics metrics;
  v1::Job job = Running("a");
  metrics.Job(job);
  job.mutable_progress()->set_loss(std::nan(""));
  metrics.Job(job);
  job.mutable_progress()->set_step_seconds(std::nan(""));
  metrics.Steps(1, 10, job.progress().step_seconds());
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_job_loss{device=\"cpu:0\",job=\"a\"} 0.5"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_step_seconds_count 0"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_metrics_dropped_total 1"));
}

TEST(MetricsTest, SeriesOfJobsAreBounded) {
  Metrics metrics;
  for (size_t i = 0; i < kMaxJobSeries + 1; ++i) metrics.Job(Running("job-" + std::to_string(i)));
  EXPECT_THAT(metrics.Text(), HasSubstr("job=\"job-255\""));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("job=\"job-256\"")));
}

TEST(MetricsTest, DevicesAddUpTheirJobs) {
  Metrics metrics;
  v1::Device device;
  device.set_name("cpu:0");
  device.set_capacity_bytes(1000);
  metrics.Devices({device}, {Running("a"), Running("b")});
  EXPECT_THAT(metrics.Text(),
              HasSubstr("snug_device_memory_predicted_bytes{device=\"cpu:0\"} 200"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_device_memory_peak_bytes{device=\"cpu:0\"} 180"));
}

v1::Device Gpu() {
  v1::Device device;
  device.set_name("gpu:0");
  device.set_model("NVIDIA H200");
  device.set_uuid("GPU-aa");
  device.set_total_bytes(5000);
  device.set_measured_bytes(300);
  device.set_others_bytes(40);
  return device;
}

TEST(MetricsTest, AGpuIsNamedAndMeasured) {
  Metrics metrics;
  v1::Job job = Running("a");
  job.set_device("gpu:0");
  job.mutable_memory()->set_process_peak_bytes(310);
  metrics.Job(job);
  metrics.Devices({Gpu()}, {job});
  for (const char* line :
       {"snug_device_info{UUID=\"GPU-aa\",device=\"gpu:0\",model_name=\"NVIDIA_H200\"} 1",
        "snug_device_up{device=\"gpu:0\"} 1",
        "snug_device_memory_total_bytes{device=\"gpu:0\"} 5000",
        "snug_device_memory_used_bytes{device=\"gpu:0\"} 300",
        "snug_device_memory_unattributed_bytes{device=\"gpu:0\"} 40",
        "snug_job_memory_process_peak_bytes{device=\"gpu:0\",job=\"a\"} 310"})
    EXPECT_THAT(metrics.Text(), HasSubstr(line));
  metrics.ForgetJob("a");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("job=\"a\"")));
}

// What the driver said last is no more true when it has stopped answering.
TEST(MetricsTest, AGpuInTroubleHasNoBytes) {
  Metrics metrics;
  metrics.Devices({Gpu()}, {});
  v1::Device silent = Gpu();
  silent.clear_measured_bytes();
  silent.clear_others_bytes();
  silent.set_trouble("GPU is lost");
  metrics.Devices({silent}, {});
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_device_up{device=\"gpu:0\"} 0"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_device_memory_used_bytes{")));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_device_memory_unattributed_bytes{")));
  silent.clear_trouble();
  silent.set_others_bytes(400);  // It answers, but names no processes.
  metrics.Devices({silent}, {});
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_device_up{device=\"gpu:0\"} 1"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_device_memory_used_bytes{")));
  metrics.Devices({Gpu()}, {});
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_device_memory_used_bytes{device=\"gpu:0\"} 300"));
}

// Nothing measures a CPU from outside: it has no such series.
TEST(MetricsTest, ACpuHasNoSeriesOfAGpu) {
  Metrics metrics;
  v1::Device device;
  device.set_name("cpu:0");
  metrics.Devices({device}, {Running("a")});
  for (const char* family :
       {"snug_device_up{", "snug_device_memory_used_bytes{", "snug_job_memory_process_peak_bytes{"})
    EXPECT_THAT(metrics.Text(), Not(HasSubstr(family)));
}

TEST(MetricsTest, PortThatIsTakenIsAStatus) {
  Metrics first, second;
  ASSERT_TRUE(first.Serve(0).ok());
  ASSERT_GT(first.port(), 0);
  EXPECT_TRUE(absl::IsUnavailable(second.Serve(first.port())));
  EXPECT_EQ(second.port(), 0);
}

}  // namespace
}  // namespace snug::server
