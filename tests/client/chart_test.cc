#include "client/chart.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/picture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

v1::Job Job(const std::string& id, const std::string& name) {
  v1::Job job;
  job.set_id(id);
  job.set_display_name(name);
  job.mutable_memory()->set_budget_bytes(int64_t{4} << 30);
  job.mutable_memory()->set_measured_peak_bytes(int64_t{1} << 30);
  return job;
}

v1::MetricSeries& AddSeries(const std::string& name, v1::GetMetricHistoryResponse& history) {
  v1::MetricSeries& series = *history.add_series();
  series.set_name(name);
  return series;
}

void AddPoint(int64_t step, double value, v1::MetricSeries& series) {
  series.add_steps(step);
  series.add_values(value);
}

// Five steps whose loss falls from 5 to 1, and an evaluation.
v1::GetMetricHistoryResponse History() {
  v1::GetMetricHistoryResponse history;
  v1::MetricSeries& rate = AddSeries("learning_rate", history);
  for (int step = 1; step <= 5; ++step) AddPoint(step, 0.001, rate);
  v1::MetricSeries& loss = AddSeries("loss", history);
  for (int step = 1; step <= 5; ++step) AddPoint(step, 6 - step, loss);
  AddPoint(5, 0.75, AddSeries("eval_f1_macro", history));
  AddPoint(5, 2.5, AddSeries("eval_loss", history));
  AddPoint(5, 9.0, AddSeries("eval_runtime", history));
  return history;
}

Chart Of(int jobs) {
  Chart chart;
  for (int i = 0; i < jobs; ++i) AddJob(Job(absl::StrCat("j", i), "run <1>"), History(), chart);
  return chart;
}

TEST(ChartTest, PanelsAreTheQuantitiesThatThereAre) {
  const Chart chart = Of(2);
  ASSERT_EQ(chart.panels.size(), 4u);
  EXPECT_EQ(chart.panels[0].title, "loss");
  EXPECT_EQ(chart.panels[0].series.size(), 2u);
  EXPECT_THAT(chart.panels[0].series[0].points,
              ElementsAre(Pair(1, 5), Pair(2, 4), Pair(3, 3), Pair(4, 2), Pair(5, 1)));
  EXPECT_EQ(chart.panels[1].title, "eval loss");
  EXPECT_EQ(chart.panels[3].title, "eval f1 macro");
  EXPECT_EQ(ValuesOf(chart.panels[0]).low, 1.0);
  EXPECT_EQ(StepsOf(chart.panels[0]).high, 5.0);
  // One value has a band around it.
  EXPECT_LT(ValuesOf(chart.panels[2]).low, 0.001);
  EXPECT_GT(ValuesOf(chart.panels[2]).high, 0.001);
}

TEST(ChartTest, AJobWithoutAStepHasNoPanel) {
  Chart chart;
  AddJob(Job("j", ""), {}, chart);
  EXPECT_TRUE(chart.panels.empty());
}

// The loss falls from the left above to the right below.
TEST(ChartTest, TextShowsTheCourse) {
  std::ostringstream out;
  PrintChart(Of(2), {.columns = 60}, out);
  const std::vector<std::string> lines = absl::StrSplit(out.str(), '\n');
  EXPECT_EQ(lines[0], "a run <1> j0");
  EXPECT_EQ(lines[3], "loss");
  EXPECT_THAT(lines[4], ::testing::StartsWith("         5 |b"));
  EXPECT_THAT(lines[11], HasSubstr("         1 |"));
  EXPECT_EQ(lines[11].back(), 'b');
  EXPECT_THAT(out.str(), HasSubstr("step 5"));
  EXPECT_THAT(out.str(), HasSubstr("| 1 GiB of 4 GiB  run <1> j0"));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 60u) << line;
}

TEST(ChartTest, SvgHasALineForEachJobAndEscapesTheirNames) {
  const std::string svg = ChartSvg(Of(2));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, HasSubstr("run &lt;1&gt; j1"));
  EXPECT_THAT(svg, HasSubstr("<polyline points=\"70.0,"));
  const std::vector<std::string> lines = absl::StrSplit(svg, "<polyline");
  EXPECT_EQ(lines.size(), 1u + 2 * 4);
  EXPECT_THAT(svg, HasSubstr("1 GiB of 4 GiB"));
}

// A program of this name that shows what it is given.
TEST(PictureTest, APngIsDrawnByRsvgConvert) {
  const std::string folder = ::testing::TempDir() + "/picture";
  std::filesystem::create_directories(folder);
  const std::string program = folder + "/rsvg-convert", output = folder + "/a \"b.png";
  std::ofstream(program) << "#!/bin/sh\n"
                            "[ \"$#\" = 2 ] || exit 3\n"
                            "exec cat - >\"${2#--output=}\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string before = std::getenv("PATH");
  setenv("PATH", (folder + ":" + before).c_str(), 1);
  EXPECT_EQ(WritePng("<svg/>", output), absl::OkStatus());
  const absl::Status nowhere = WritePng("<svg/>", "/nowhere/a.png");
  setenv("PATH", "/nowhere", 1);
  const absl::Status missing = WritePng("<svg/>", output);
  setenv("PATH", before.c_str(), 1);
  std::ifstream written(output);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(written), {}), "<svg/>");
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("cannot write /nowhere/a.png: rsvg-conv"));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("apt-get install librsvg2-bin"));
}

}  // namespace
}  // namespace snug::client
