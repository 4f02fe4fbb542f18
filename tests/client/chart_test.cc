#include "client/chart.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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

// Five steps whose loss falls from 5 to 1, an evaluation, and a line that is being written.
std::string Metrics() {
  std::string text;
  for (int step = 1; step <= 5; ++step)
    absl::StrAppend(&text, "{\"loss\":", 6 - step,
                    ",\"learning_rate\":0.001,\"global_step\":", step, "}\n");
  return text + "{\"eval_loss\":2.5,\"global_step\":5}\n{\"loss\":";
}

Chart Of(int jobs) {
  Chart chart;
  for (int i = 0; i < jobs; ++i)
    EXPECT_TRUE(AddJob(Job(absl::StrCat("j", i), "run <1>"), Metrics(), chart).ok());
  return chart;
}

TEST(ChartTest, PanelsAreTheQuantitiesThatThereAre) {
  const Chart chart = Of(2);
  ASSERT_EQ(chart.panels.size(), 3u);
  EXPECT_EQ(chart.panels[0].title, "loss");
  EXPECT_EQ(chart.panels[0].series.size(), 2u);
  EXPECT_THAT(chart.panels[0].series[0].points,
              ElementsAre(Pair(1, 5), Pair(2, 4), Pair(3, 3), Pair(4, 2), Pair(5, 1)));
  EXPECT_EQ(chart.panels[1].title, "eval loss");
  EXPECT_EQ(ValuesOf(chart.panels[0]).low, 1.0);
  EXPECT_EQ(StepsOf(chart.panels[0]).high, 5.0);
  // One value has a band around it.
  EXPECT_LT(ValuesOf(chart.panels[2]).low, 0.001);
  EXPECT_GT(ValuesOf(chart.panels[2]).high, 0.001);
}

TEST(ChartTest, OtherLinesAreAnError) {
  Chart chart;
  EXPECT_FALSE(AddJob(Job("j", ""), "noise\n", chart).ok());
  EXPECT_TRUE(AddJob(Job("j", ""), "", chart).ok());
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
  EXPECT_EQ(lines.size(), 1u + 2 * 3);
  EXPECT_THAT(svg, HasSubstr("1 GiB of 4 GiB"));
}

}  // namespace
}  // namespace snug::client
