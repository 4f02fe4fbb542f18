// Looking through the store and the files that it names: at once, and at the examiner's pace.
#include "server/examine/examination.h"

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/examine/examiner.h"
#include "tests/server/examine/examine_fixture.h"

namespace snug::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

using ExaminationTest = ExamineTest;

// A whole store has no findings; each damage has one, by its name.
TEST_F(ExaminationTest, ExaminationFindsEachDamage) {
  {
    auto store = Open().value();
    JobRecord job = AJob("a", 1);
    Change change{.job = &job};
    change.events = {{.job = "a", .to = Job::STATE_QUEUED}};
    ASSERT_TRUE(store->Commit(change).ok());
    const v1::CheckStoreResponse whole = Examine(*store, APremises()).value();
    EXPECT_EQ(whole.findings_size(), 0) << whole.ShortDebugString();
    EXPECT_EQ(whole.jobs(), 1);
  }
  const auto found = [&](const std::string& damage, const std::string& repair) {
    const std::vector<std::string> checks = FoundAfter(damage);
    Write(repair);
    return checks;
  };
  EXPECT_THAT(found("UPDATE jobs SET spec_sha256='x' || spec_sha256",
                    "UPDATE jobs SET spec_sha256=substr(spec_sha256, 2)"),
              ElementsAre("spec_sha256"));
  EXPECT_THAT(found("UPDATE events SET seq=5", "UPDATE events SET seq=1"),
              Contains("dense_events"));
  EXPECT_THAT(found("UPDATE counts SET jobs=7", "UPDATE counts SET jobs=1"),
              Contains("count_of_jobs"));
  EXPECT_THAT(
      found("INSERT INTO reservations VALUES('cpu:0', 'a', 1, 5)", "DELETE FROM reservations"),
      Contains("reservation_of_an_open_attempt"));
}

TEST_F(ExaminationTest, ReadsOutputsToTheLastByte) {
  auto store = Open().value();
  CommitOutput(*store);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  std::fstream(dir_ + "/out-a/adapter_model.safetensors").seekp(2'999'999) << 'x';
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("outputs"));
  fs::remove_all(dir_ + "/out-a");
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("outputs"));
}

// Also within a file: of three megabytes there are rests behind the first and the second.
TEST_F(ExaminationTest, RestsBetweenPiecesAndEndsThere) {
  auto store = Open().value();
  int without = 0, with = 0;
  EXPECT_TRUE(Examine(*store, APremises(), [&](absl::Duration) { return ++without > 0; }).ok());
  CommitOutput(*store);
  EXPECT_TRUE(Examine(*store, APremises(), [&](absl::Duration) { return ++with > 0; }).ok());
  EXPECT_GE(with, without + 2);
  int left = with / 2;
  const auto until = [&](absl::Duration) { return left-- > 0; };
  EXPECT_TRUE(absl::IsCancelled(Examine(*store, APremises(), until).status()));
  EXPECT_EQ(left, -1);
}

// What goes while it is looked at is not missed, at whatever moment it goes.
TEST_F(ExaminationTest, AJobMayBeDeletedMeanwhile) {
  auto store = Open().value();
  bool deleted = true;
  for (int moment = 1; deleted; ++moment) {
    CommitOutput(*store);
    deleted = false;
    int rests = 0;
    const auto removing = [&](absl::Duration) {
      if (++rests != moment) return true;
      fs::remove_all(dir_ + "/out-a");
      Change deletion{.deleted = "a"};
      deletion.events = {{.job = "a", .from = Job::STATE_SUCCEEDED}};
      deleted = store->Commit(deletion).ok();
      return deleted;
    };
    EXPECT_THAT(ChecksThatFound(*store, removing), ElementsAre()) << moment;
    ASSERT_LT(moment, 100);
  }
}

TEST_F(ExaminationTest, TheExaminerSaysWhatItFindsInTheMetrics) {
  auto store = Open().value();
  CommitOutput(*store);
  Metrics metrics;
  const auto line = [&](const std::string& name, const std::string& value) {
    for (int i = 0; i < 500; ++i) {
      if (absl::StrContains(metrics.Text(), absl::StrCat("\n", name, " ", value, "\n")))
        return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  };
  Examiner examiner(*store, APremises(), metrics, absl::Milliseconds(20));
  EXPECT_TRUE(line("snug_store_findings{check=\"outputs\"}", "0"));
  WriteText(dir_ + "/out-a/adapter_model.safetensors", "other");
  EXPECT_TRUE(line("snug_store_findings{check=\"outputs\"}", "1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_store_examined_timestamp_seconds"));
}

}  // namespace
}  // namespace snug::server
