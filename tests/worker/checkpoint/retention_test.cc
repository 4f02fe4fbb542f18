#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/folder_name.h"

namespace snug::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RetentionTest : public testing::Test {
 protected:
  void SaveAt(int64_t step, int32_t epoch = 1) {
    SNUG_ASSERT_OK(Save(folder_.path(), StateAt(step, epoch), SmallWeights(1.0f).list(), {}));
  }
  std::vector<std::string> Names() {
    const auto paths = List(folder_.path());
    EXPECT_TRUE(paths.ok()) << paths.status();
    std::vector<std::string> names;
    for (const std::string& path : *paths) names.push_back(std::filesystem::path(path).filename());
    return names;
  }

  TempFolder folder_;
};

// Steps count as numbers, not as text; the later attempt of a step is the newer one.
TEST_F(RetentionTest, ListsByStepThenByEpoch) {
  SaveAt(1'000'000);
  SaveAt(999'999);
  SaveAt(20, 2);
  SaveAt(20, 1);
  SaveAt(20, 10);
  EXPECT_THAT(Names(), ElementsAre("step-000020.e1", "step-000020.e2", "step-000020.e10",
                                   "step-999999.e1", "step-1000000.e1"));
}

TEST_F(RetentionTest, ListsNothingButCheckpoints) {
  SaveAt(5);
  for (const char* name : {"step-000006.e1.tmp", ".trash", "step-6.e1", "step-000006", "step-x.e1",
                           "step-000006.e1.bak", "step--00006.e1", "step-000006.e01"}) {
    std::filesystem::create_directory(folder_ / name);
  }
  WriteText(folder_ / "step-000007.e1", "a file");
  std::filesystem::create_directory_symlink(folder_ / "step-000005.e1", folder_ / "step-000008.e1");
  EXPECT_THAT(Names(), ElementsAre("step-000005.e1"));
  const auto absent = List(folder_ / "absent");
  SNUG_ASSERT_OK(absent);
  EXPECT_THAT(*absent, IsEmpty());
}

// The best one stays beside the newest, however old; once another is the best it goes.
TEST_F(RetentionTest, KeepsTheBest) {
  for (const int64_t step : {10, 20, 30, 40}) SaveAt(step);
  SNUG_ASSERT_OK(Prune(folder_.path(), 2, "step-000010.e1"));
  EXPECT_THAT(Names(), ElementsAre("step-000010.e1", "step-000030.e1", "step-000040.e1"));
  SNUG_ASSERT_OK(Prune(folder_.path(), 1, "step-000040.e1"));
  EXPECT_THAT(Names(), ElementsAre("step-000040.e1"));
}

TEST_F(RetentionTest, KeepsTheNewest) {
  for (const int64_t step : {10, 20, 30, 40}) SaveAt(step);
  SNUG_ASSERT_OK(Prune(folder_.path(), 5));
  EXPECT_EQ(Names().size(), 4u);
  SNUG_ASSERT_OK(Prune(folder_.path(), 2));
  EXPECT_THAT(Names(), ElementsAre("step-000030.e1", "step-000040.e1"));
  SNUG_ASSERT_OK(Verify(folder_ / "step-000030.e1"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / ".trash"));
  EXPECT_FALSE(Prune(folder_.path(), 0).ok());
  EXPECT_EQ(Names().size(), 2u);
}

// The newest is damaged: it is no reason to let go of an older one.
TEST_F(RetentionTest, LetsNothingGoUnlessTheNewestIsSound) {
  for (const int64_t step : {10, 20, 30}) SaveAt(step);
  const std::string file = folder_ / "step-000030.e1/weights.safetensors";
  std::string damaged = ReadText(file);
  damaged.back() ^= 1;
  WriteText(file, damaged);
  const absl::Status status = Prune(folder_.path(), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(file));
  EXPECT_EQ(Names().size(), 3u);
}

// Killed while taking one apart, and while writing one: both go at the next pruning, but not the
// folder that the present attempt may be writing.
TEST_F(RetentionTest, SweepsWhatKilledAttemptsLeft) {
  SaveAt(10, 1);
  SaveAt(20, 2);
  std::filesystem::create_directories(folder_ / ".trash/step-000005.e1");
  WriteText(folder_ / ".trash/step-000005.e1/weights.safetensors", "half");
  std::filesystem::create_directory(folder_ / "step-000020.e1.tmp");
  std::filesystem::create_directory(folder_ / "step-000030.e2.tmp");
  SNUG_ASSERT_OK(Prune(folder_.path(), 2));
  EXPECT_FALSE(std::filesystem::exists(folder_ / ".trash"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "step-000020.e1.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "step-000030.e2.tmp"));
  EXPECT_THAT(Names(), ElementsAre("step-000010.e1", "step-000020.e2"));
}

TEST(FolderNameTest, ReadsOnlyWhatItWrites) {
  EXPECT_EQ((CheckpointName{.step = 123, .epoch = 4}).text(), "step-000123.e4");
  EXPECT_EQ(ParseCheckpointName("step-000123.e4"), (CheckpointName{.step = 123, .epoch = 4}));
  for (const char* text : {"", "step-", "step-000123", "step-000123.e", "step-123.e4",
                           "step-000123.e4 ", "step-99999999999999999999.e1"}) {
    EXPECT_EQ(ParseCheckpointName(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace snug::checkpoint
