#include "server/api/metric_history.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/node/attempt_files.h"
#include "tests/server/testing/brackets.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

// Of steps 1 to `steps`: a loss that is the step's number, and an evaluation at each tenth.
v1::GetMetricHistoryResponse HistoryOf(const v1::GetMetricHistoryRequest& request, int64_t steps) {
  MetricHistory history(request, steps);
  for (int64_t step = 1; step <= steps; ++step) {
    EXPECT_TRUE(history
                    .Add(absl::StrCat("{\"loss\":", step, ",\"global_step\":", step,
                                      ",\"time\":", 1000 + step, "}"))
                    .ok());
    if (step % 10 != 0) continue;
    EXPECT_TRUE(history
                    .Add(absl::StrCat("{\"eval_loss\":0.5,\"note\":null,\"global_step\":", step,
                                      ",\"time\":", 1000 + step, "}"))
                    .ok());
  }
  return history.Response();
}

TEST(MetricHistoryTest, EachNumberOfALineIsASeries) {
  const v1::GetMetricHistoryResponse history = HistoryOf({}, 10);
  ASSERT_EQ(history.series_size(), 2);
  EXPECT_EQ(history.last_step(), 10);
  EXPECT_EQ(history.series(0).name(), "loss");
  EXPECT_EQ(history.series(0).steps_size(), 10);
  EXPECT_EQ(history.series(0).values(2), 3.0);
  EXPECT_EQ(history.series(0).unix_seconds(2), 1003.0);
  EXPECT_EQ(history.series(1).name(), "eval_loss");
  EXPECT_THAT(history.series(1).steps(), ElementsAre(10));
}

TEST(MetricHistoryTest, MoreStepsThanPointsBecomeMeansOfStretches) {
  v1::GetMetricHistoryRequest request;
  request.set_max_points(3);
  request.add_metrics("loss");
  const v1::GetMetricHistoryResponse history = HistoryOf(request, 10);
  ASSERT_EQ(history.series_size(), 1);
  EXPECT_THAT(history.series(0).steps(), ElementsAre(4, 8, 10));
  EXPECT_THAT(history.series(0).values(), ElementsAre(2.5, 6.5, 9.5));
  EXPECT_THAT(history.series(0).unix_seconds(), ElementsAre(1004, 1008, 1010));
}

TEST(MetricHistoryTest, AskedAfterAStepOnlyLaterOnesCount) {
  v1::GetMetricHistoryRequest request;
  request.set_after_step(8);
  const v1::GetMetricHistoryResponse history = HistoryOf(request, 10);
  EXPECT_THAT(history.series(0).steps(), ElementsAre(9, 10));
  request.set_after_step(12);
  EXPECT_EQ(HistoryOf(request, 10).series_size(), 0);
  EXPECT_EQ(HistoryOf(request, 10).last_step(), 12);
}

// However the steps and the points divide.
TEST(MetricHistoryTest, NeverMorePointsThanAskedFor) {
  for (int steps = 1; steps <= 40; ++steps)
    for (int points = 1; points <= 12; ++points) {
      v1::GetMetricHistoryRequest request;
      request.set_max_points(points);
      const v1::GetMetricHistoryResponse history = HistoryOf(request, steps);
      EXPECT_LE(history.series(0).steps_size(), points) << steps;
      EXPECT_EQ(*history.series(0).steps().rbegin(), steps);
    }
}

TEST(MetricHistoryTest, ALineWithoutAStepIsDamage) {
  MetricHistory history({}, 5);
  for (const char* line : {"noise", "[]", "{\"loss\":1}", "{\"global_step\":\"1\"}"})
    EXPECT_TRUE(absl::IsDataLoss(history.Add(line))) << line;
}

// A worker writes the file, and with it whatever it likes.
TEST(MetricHistoryTest, ALineOfBracketsIsDamage) {
  const TestFolder folder("metric-history");
  const std::string& state = folder.path();
  const std::string path = AttemptDir(state, "a", 1) + "/metrics.jsonl";
  fs::create_directories(fs::path(path).parent_path());
  JobIndex index;
  JobRecord record;
  record.job.set_id("a");
  record.job.set_epoch(1);
  index.Put(record);
  v1::GetMetricHistoryRequest request;
  request.set_id("a");
  const auto history = [&] { return MetricHistoryOf(index, state, request); };
  const std::string line = "{\"loss\":1,\"global_step\":1}\n";

  std::ofstream(path) << line;
  EXPECT_EQ(history()->last_step(), 1);
  WriteBrackets(path);
  std::ofstream(path, std::ios::app) << "\n" << line;
  EXPECT_TRUE(absl::IsDataLoss(history().status())) << history().status();
  EXPECT_THAT(std::string(history().status().message()), testing::HasSubstr("bytes"));
  std::ofstream(path) << "{\"loss\":" << Nested(60'000) << ",\"global_step\":1}\n" << line;
  EXPECT_TRUE(absl::IsDataLoss(history().status())) << history().status();
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsDataLoss(history().status())) << history().status();
}

}  // namespace
}  // namespace snug::server
