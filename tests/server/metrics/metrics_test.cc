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

TEST(MetricsTest, PortThatIsTakenIsAStatus) {
  Metrics first, second;
  ASSERT_TRUE(first.Serve(0).ok());
  ASSERT_GT(first.port(), 0);
  EXPECT_TRUE(absl::IsUnavailable(second.Serve(first.port())));
  EXPECT_EQ(second.port(), 0);
}

}  // namespace
}  // namespace snug::server
