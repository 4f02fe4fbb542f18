#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

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

// F-77
TEST(MetricsTest, LabelsHoldNothingThatBlindsAScrape) {
  EXPECT_EQ(SanitizeLabel("a-b_c.d:e/f"), "a-b_c.d:e/f");
  EXPECT_EQ(SanitizeLabel("a\xff\n\"b"), "a___b");
  EXPECT_EQ(SanitizeLabel(std::string(300, 'x')).size(), 128u);
}

TEST(MetricsTest, StatesExistBeforeTheFirstJob) {
  Metrics metrics;
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_jobs{state=\"RUNNING\"} 0"));
  metrics.CountJobs(v1::Job::STATE_RUNNING, 1);
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_jobs{state=\"RUNNING\"} 1"));
}

TEST(MetricsTest, SeriesOfAJobGoWithIt) {
  Metrics metrics;
  metrics.Job(Running("a"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_job_step{device=\"cpu:0\",job=\"a\"} 3"));
  metrics.ForgetJob("a");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("job=\"a\"")));
}

// F-58. Of two tenants that chose the longest of ids, each has its own series to the end.
TEST(MetricsTest, TheLongestKeysAreNotTaken) {
  Metrics metrics;
  v1::Job blue = Running(std::string(63, 'a')), red = blue;
  blue.set_key(blue.id() + ".blue");
  red.set_key(red.id() + "." + std::string(63, 'r'));
  metrics.Job(blue);
  metrics.Job(red);
  metrics.ForgetJob(blue.key());
  red.mutable_progress()->set_global_step(4);
  metrics.Job(red);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("snug_job_step{device=\"cpu:0\",job=\"" + red.key() + "\"} 4"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr(".blue")));
}

// A later evaluation may lack what an earlier one had.
TEST(MetricsTest, EvaluationsAreShownByTheirMetrics) {
  Metrics metrics;
  v1::Job job = Running("a");
  metrics.Job(job);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_job_eval_metric{")));
  job.mutable_progress()->set_eval_loss(0.75);
  (*job.mutable_progress()->mutable_eval_metrics())["eval_f1"] = 0.5;
  metrics.Job(job);
  for (const char* line :
       {"snug_job_eval_metric{device=\"cpu:0\",job=\"a\",metric=\"eval_loss\"} 0.75",
        "snug_job_eval_metric{device=\"cpu:0\",job=\"a\",metric=\"eval_f1\"} 0.5"})
    EXPECT_THAT(metrics.Text(), HasSubstr(line));
  job.mutable_progress()->clear_eval_metrics();
  metrics.Job(job);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("eval_f1")));
  metrics.ForgetJob("a");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_job_eval_metric{")));
}

// A NaN in a histogram's sum would stay there for ever.
TEST(MetricsTest, NumbersThatAreNotFiniteAreDropped) {
  Metrics metrics;
  v1::Job job = Running("a");
  metrics.Job(job);
  job.mutable_progress()->set_loss(std::nan(""));
  metrics.Job(job);
  job.mutable_progress()->set_step_seconds(std::nan(""));
  metrics.Steps("cpu:0", 1, 10, job.progress().step_seconds());
  v1::Device device;
  device.set_name("cpu:0");
  metrics.Devices({device}, {});
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_job_loss{device=\"cpu:0\",job=\"a\"} 0.5"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_step_seconds_count{device=\"cpu:0\"} 0"));
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
  job.mutable_memory()->add_looks();
  job.mutable_memory()->set_uncounted_bytes(-20);
  metrics.Job(job);
  metrics.Devices({Gpu()}, {job});
  for (const char* line :
       {"snug_device_info{UUID=\"GPU-aa\",device=\"gpu:0\",model_name=\"NVIDIA_H200\"} 1",
        "snug_device_up{device=\"gpu:0\"} 1",
        "snug_device_memory_total_bytes{device=\"gpu:0\"} 5000",
        "snug_device_memory_used_bytes{device=\"gpu:0\"} 300",
        "snug_device_memory_unattributed_bytes{device=\"gpu:0\"} 40",
        "snug_job_memory_process_peak_bytes{device=\"gpu:0\",job=\"a\"} 310",
        "snug_job_memory_uncounted_bytes{device=\"gpu:0\",job=\"a\"} -20"})
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

TEST(MetricsTest, APlanIsShownByComponentAndGoesWithTheNext) {
  Metrics metrics;
  v1::Job job = Running("a");
  job.mutable_plan()->set_name("recompute 3 of 8");
  job.mutable_plan()->set_fidelity(v1::FIDELITY_UNBIASED);
  job.mutable_plan()->set_peak_bytes(100);
  job.mutable_plan()->mutable_memory()->set_weights_bytes(70);
  job.mutable_plan()->mutable_memory()->set_stash_bytes(30);
  metrics.Job(job);
  const std::string component = "snug_job_memory_predicted_component_bytes{component=\"";
  EXPECT_THAT(metrics.Text(), HasSubstr(component + "weights\",device=\"cpu:0\",job=\"a\"} 70"));
  EXPECT_THAT(metrics.Text(), HasSubstr(component + "stash\",device=\"cpu:0\",job=\"a\"} 30"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_job_plan_info{device=\"cpu:0\",fidelity=\"UNBIASED\","
                                        "job=\"a\",plan=\"recompute_3_of_8\"} 1"));
  job.mutable_plan()->set_name("recompute");
  job.mutable_plan()->clear_fidelity();
  job.mutable_plan()->mutable_memory()->clear_stash_bytes();
  metrics.Job(job);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr(component + "stash")));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("recompute_3_of_8")));
  EXPECT_THAT(metrics.Text(), HasSubstr("fidelity=\"EXACT\",job=\"a\",plan=\"recompute\"} 1"));
}

// The oldest is shown while it waits, then the next; a start is a wait that has ended, a cancel
// is none.
TEST(MetricsTest, TheQueueShowsItsOldestAndHowLongStartsTook) {
  Metrics metrics;
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_queue_oldest_timestamp_seconds ")));
  metrics.Queued("a", absl::FromUnixSeconds(100));
  metrics.Queued("b", absl::FromUnixSeconds(200));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_queue_oldest_timestamp_seconds 100"));
  metrics.Placed("a", absl::FromUnixSeconds(105));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_queue_oldest_timestamp_seconds 200"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_queue_wait_seconds_sum 5"));
  metrics.Unqueued("b");
  metrics.Placed("b", absl::FromUnixSeconds(300));  // It does not wait any more.
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_queue_wait_seconds_count 1"));
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_queue_oldest_timestamp_seconds ")));
}

TEST(MetricsTest, PredictionsAreHeldAgainstMeasurements) {
  Metrics metrics;
  metrics.Prediction(200, 198);
  metrics.Prediction(200, 0);  // It measured nothing: it was never that far.
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_memory_measured_to_predicted_ratio_sum 0.99"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_memory_measured_to_predicted_ratio_count 1"));
}

TEST(MetricsTest, PredictedTimesAreHeldAgainstMeasuredOnesByDevice) {
  Metrics metrics;
  v1::Device device;
  device.set_name("cpu:0");
  metrics.Devices({device}, {});
  const std::string ratio = "snug_step_measured_to_predicted_ratio_";
  EXPECT_THAT(metrics.Text(), HasSubstr(ratio + "count{device=\"cpu:0\"} 0"));
  metrics.StepPrediction("cpu:0", 1.5);
  metrics.StepPrediction("cpu:0", 0.0);  // It took too few steps.
  metrics.StepPrediction("gpu:0", 0.75);
  EXPECT_THAT(metrics.Text(), HasSubstr(ratio + "sum{device=\"cpu:0\"} 1.5"));
  EXPECT_THAT(metrics.Text(), HasSubstr(ratio + "count{device=\"cpu:0\"} 1"));
  EXPECT_THAT(metrics.Text(), HasSubstr(ratio + "sum{device=\"gpu:0\"} 0.75"));
}

TEST(MetricsTest, JobsThatHadToLeaveAreCountedByDevice) {
  Metrics metrics;
  v1::Device device;
  device.set_name("cpu:0");
  metrics.Devices({device}, {});
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_jobs_displaced_total{device=\"cpu:0\"} 0"));
  metrics.Displaced("cpu:0");
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_jobs_displaced_total{device=\"cpu:0\"} 1"));
}

// By kind, the newest; before a measurement there is none.
TEST(MetricsTest, AnInexactGradientIsShownByKind) {
  Metrics metrics;
  v1::Job job = Running("a");
  metrics.Job(job);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("snug_job_gradient_cosine{")));
  v1::Drift& drift = (*job.mutable_drift())["int8"];
  drift.set_cosine(0.75);
  drift.set_relative_error(0.5);
  metrics.Job(job);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("snug_job_gradient_cosine{device=\"cpu:0\",job=\"a\",kind=\"int8\"} 0.75"));
  EXPECT_THAT(
      metrics.Text(),
      HasSubstr("snug_job_gradient_relative_error{device=\"cpu:0\",job=\"a\",kind=\"int8\"} 0.5"));
}

TEST(MetricsTest, TheDiskIsReadWhenAsked) {
  Metrics metrics;
  metrics.WatchDisk(testing::TempDir());
  const std::filesystem::space_info space = std::filesystem::space(testing::TempDir());
  std::smatch size;
  const std::string text = metrics.Text();
  ASSERT_TRUE(std::regex_search(text, size, std::regex(R"(\nsnug_state_disk_size_bytes (\S+))")));
  EXPECT_DOUBLE_EQ(std::stod(size[1]), static_cast<double>(space.capacity));
  Metrics gone;
  gone.WatchDisk("/nowhere");
  EXPECT_THAT(gone.Text(), Not(HasSubstr("snug_state_disk")));
}

// name -> "kind; labels", of a text as it is scraped.
std::map<std::string, std::string> FamiliesOf(const std::string& text) {
  std::map<std::string, std::string> kinds;
  std::map<std::string, std::set<std::string>> labels;
  std::istringstream lines(text);
  const std::regex type(R"(# TYPE (\S+) (\S+))"), sample(R"(([a-z_]+)(?:\{(.*)\})? \S+)");
  const std::regex label(R"(([A-Za-z_]+)=")");
  std::string name;
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, type)) kinds[name = match[1]] = match[2];
    if (!std::regex_match(line, match, sample)) continue;
    const std::string given = match[2];
    for (std::sregex_iterator it(given.begin(), given.end(), label), end; it != end; ++it)
      if ((*it)[1] != "le") labels[name].insert((*it)[1]);
  }
  std::map<std::string, std::string> families;
  for (const auto& [family, kind] : kinds) {
    families[family] = kind + ";";
    for (const std::string& each : labels[family]) families[family] += " " + each;
  }
  return families;
}

// The same of the table in docs/metrics.md: | `name` | kind | labels | ... |
std::map<std::string, std::string> FamiliesOfDocs() {
  std::ifstream file(std::string(std::getenv("SNUG_SOURCE_DIR")) + "/docs/metrics.md");
  const std::regex row(R"(\| `(snug_\w+)` \| (\w+) \|([^|]*)\|.*)"), word(R"(\w+)");
  std::map<std::string, std::string> families;
  std::smatch match;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_match(line, match, row)) continue;
    const std::string given = match[3];
    std::set<std::string> labels;
    for (std::sregex_iterator it(given.begin(), given.end(), word), end; it != end; ++it)
      labels.insert(it->str());
    families[match[1]] = std::string(match[2]) + ";";
    for (const std::string& each : labels) families[match[1]] += " " + each;
  }
  return families;
}

// Everything that there can be is there: a GPU that answers, a job with a plan, one in the queue.
TEST(MetricsTest, TheTableInTheDocsIsComplete) {
  Metrics metrics;
  v1::Job job = Running("a");
  job.mutable_memory()->set_process_peak_bytes(310);
  job.mutable_memory()->add_looks();
  job.mutable_plan()->mutable_memory()->set_weights_bytes(70);
  (*job.mutable_progress()->mutable_eval_metrics())["eval_f1"] = 0.5;
  (*job.mutable_drift())["int8"].set_cosine(0.5);
  metrics.Job(job);
  metrics.Heard("a", absl::FromUnixSeconds(7));
  metrics.Queued("b", absl::FromUnixSeconds(7));
  metrics.Devices({Gpu()}, {job});
  metrics.WatchDisk(testing::TempDir());
  metrics.Examined(absl::FromUnixSeconds(7), {{"pages", 0}});
  EXPECT_EQ(FamiliesOf(metrics.Text()), FamiliesOfDocs());
}

}  // namespace
}  // namespace snug::server
