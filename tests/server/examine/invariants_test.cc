// What must hold of any store, each by a violation that is planted: the promises, the requests, the
// processes, the checkpoints and the ends of a job that runs and of one that has succeeded.
#include <signal.h>
#include <sys/wait.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/examine/examiner.h"
#include "server/node/attempt_files.h"
#include "server/node/process.h"
#include "server/node/session.h"
#include "tests/server/examine/examine_fixture.h"

namespace snug::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

// Job r runs: its second attempt went on from step 2 of the first one's. Job s has succeeded at its
// first attempt.
class InvariantsTest : public ExamineTest {
 protected:
  void SetUp() override {
    auto store = Open().value();
    ASSERT_NO_FATAL_FAILURE(CommitOutput(*store, "s", 1));
    AttemptRecord only = NewAttempt("s", 1);
    only.state = AttemptState::kClosed;
    ASSERT_TRUE(store->Commit({.attempt = &only}).ok());
    JobRecord job = AJob("r", 2);
    job.job.set_state(Job::STATE_RUNNING);
    AttemptRecord first = NewAttempt("r", 1), second = NewAttempt("r", 2);
    first.state = AttemptState::kClosed;
    second.state = AttemptState::kLive;
    second.resume_from = dir_ + "/jobs/r/checkpoints/step-000002.e1";
    second.resume_step = 2;
    ASSERT_TRUE(CreateJob(*store, job, {"one", "x", "r", 9}).ok());
    ASSERT_TRUE(store->Commit({.attempt = &first}).ok());
    ASSERT_TRUE(
        store->Commit({.attempt = &second, .reserve = Reservation{"cpu:0", "r", 2, 900}}).ok());
    fs::create_directories(second.resume_from);
    WriteManifest(2);
    ASSERT_THAT(ChecksThatFound(*store), ElementsAre());
    ASSERT_THAT(NamesOf(ExamineLive(*store, APremises()).value()), ElementsAre());
  }

  void WriteManifest(int step) const {
    WriteText(dir_ + "/jobs/r/checkpoints/step-000002.e1/MANIFEST.json",
              absl::StrCat("{\"step\": ", step, ", \"epoch\": 1, \"files\": {}}"));
  }

  // What an attempt of r has written about itself at its end.
  void WriteResult(int epoch, int resumed_from) const {
    const std::string dir = AttemptDir(dir_, "r", epoch);
    fs::create_directories(dir);
    WriteText(dir + "/result.json", absl::StrCat("{\"progress\": {\"globalStep\": 5, ",
                                                 "\"resumedFromStep\": ", resumed_from, "}}"));
  }
};

TEST_F(InvariantsTest, NoMoreIsPromisedThanADeviceHas) {
  EXPECT_THAT(FoundAfter("UPDATE reservations SET bytes=1001"),
              ElementsAre("promises_within_capacity"));
  EXPECT_THAT(NamesOf(ExamineLive(*Reopened(), APremises()).value()),
              ElementsAre("promises_within_capacity"));
  EXPECT_THAT(FoundAfter("UPDATE reservations SET bytes=1000"), ElementsAre());
  EXPECT_THAT(FoundAfter("UPDATE attempts SET plan=x'ff' WHERE job='r'"),
              ElementsAre("promises_within_capacity"));
}

// Of two attempts that share 300 bytes of a model, these count once.
TEST_F(InvariantsTest, WhatIsSharedIsPromisedOnce) {
  {
    auto store = Open().value();
    JobRecord other = AJob("o", 3);
    other.job.set_state(Job::STATE_RUNNING);
    AttemptRecord attempt = NewAttempt("o", 1), second = NewAttempt("r", 3);
    for (AttemptRecord* each : {&attempt, &second}) {
      each->state = AttemptState::kLive;
      each->plan.mutable_shared()->set_digest("d");
      each->plan.mutable_shared()->set_bytes(300);
    }
    AttemptRecord before = NewAttempt("r", 2);
    before.state = AttemptState::kClosed;
    ASSERT_TRUE(store->Commit({.attempt = &before, .release = true}).ok());
    ASSERT_TRUE(
        store->Commit({.attempt = &second, .reserve = Reservation{"cpu:0", "r", 3, 700}}).ok());
    Change change{.job = &other, .attempt = &attempt, .reserve = Reservation{"cpu:0", "o", 1, 600}};
    change.events = {{.job = "o", .to = Job::STATE_RUNNING}};
    ASSERT_TRUE(store->Commit(change).ok());
    EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  }
  EXPECT_THAT(FoundAfter("UPDATE reservations SET bytes=601 WHERE job='o'"),
              ElementsAre("promises_within_capacity"));
}

TEST_F(InvariantsTest, TheHostsMemoryIsPromisedWithinItsBudget) {
  auto store = Reopened();
  AttemptRecord attempt = NewAttempt("r", 2);
  attempt.state = AttemptState::kLive;
  attempt.plan.set_host_bytes(51);
  ASSERT_TRUE(store->Commit({.attempt = &attempt}).ok());
  Premises premises = APremises();
  premises.host_bytes = 50;
  EXPECT_THAT(NamesOf(Examine(*store, premises).value()), ElementsAre("promises_within_capacity"));
  premises.host_bytes = 51;
  EXPECT_THAT(NamesOf(Examine(*store, premises).value()), ElementsAre());
}

// A request may make another job once it has expired.
TEST_F(InvariantsTest, ARequestMakesOneJob) {
  EXPECT_THAT(FoundAfter("UPDATE jobs SET request_id='one' WHERE id='s'"),
              ElementsAre("one_job_of_a_request"));
  EXPECT_THAT(FoundAfter("UPDATE jobs SET created_us=10 WHERE id='r'"), ElementsAre());
}

TEST_F(InvariantsTest, AJobHasOneOpenAttemptAndItIsTheLast) {
  const std::string swap =
      "UPDATE attempts SET state=6 WHERE job='r' AND epoch=2;"
      "UPDATE attempts SET state=3 WHERE job='r' AND epoch=1";
  EXPECT_THAT(FoundAfter(swap), Contains("open_attempt_is_the_last"));
  Write("DROP INDEX one_open_attempt");
  EXPECT_THAT(FoundAfter("UPDATE attempts SET state=3 WHERE job='r'"),
              Contains("one_open_attempt"));
  EXPECT_THAT(NamesOf(ExamineLive(*Reopened(), APremises()).value()),
              UnorderedElementsAre("one_open_attempt", "open_attempt_is_the_last"));
}

TEST_F(InvariantsTest, AJobEndsOnceAndNothingFollows) {
  EXPECT_THAT(FoundAfter("INSERT INTO events VALUES(3, 's', 8, 4, '', 0)"),
              UnorderedElementsAre("nothing_after_the_end", "last_event_is_the_state"));
  EXPECT_THAT(FoundAfter("UPDATE events SET old=4, new=8 WHERE seq=3"), ElementsAre("one_end"));
  // A deletion follows the end.
  EXPECT_THAT(FoundAfter("UPDATE events SET job='gone', old=8, new=0 WHERE seq=3"), ElementsAre());
}

TEST_F(InvariantsTest, OnlyAnEndHasAnOutputAndItIsTheLastAttempts) {
  EXPECT_THAT(FoundAfter("UPDATE attempts SET epoch=2 WHERE job='s'"),
              ElementsAre("output_of_the_last_attempt"));
  EXPECT_THAT(FoundAfter("UPDATE artifacts SET epoch=2"), ElementsAre());
  EXPECT_THAT(FoundAfter("INSERT INTO artifacts SELECT 'r', 2, dir, bytes, sha256 FROM artifacts"),
              ElementsAre("output_of_an_end"));
}

TEST_F(InvariantsTest, AnAttemptGoesOnFromTheStepOfItsCheckpoint) {
  EXPECT_THAT(FoundAfter("UPDATE attempts SET resume_step=3 WHERE epoch=2"),
              ElementsAre("goes_on_from_its_checkpoint"));
  EXPECT_THAT(FoundAfter("UPDATE attempts SET resume_step=2 WHERE epoch=2"), ElementsAre());
  auto store = Reopened();
  WriteManifest(3);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("goes_on_from_its_checkpoint", "checkpoints"));
  fs::remove_all(dir_ + "/jobs/r/checkpoints");  // As retention does: nothing is known any more.
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  WriteResult(2, 0);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("goes_on_from_its_checkpoint"));
  WriteResult(2, 2);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
}

TEST_F(InvariantsTest, ALaterAttemptsCheckpointIsNoBeginning) {
  const std::string later = dir_ + "/jobs/r/checkpoints/step-000002.e2";
  EXPECT_THAT(FoundAfter("UPDATE attempts SET resume_from='" + later + "' WHERE epoch=2"),
              ElementsAre("goes_on_from_its_checkpoint"));
}

// The manifest has the place in the data, and the row the manifest's hash.
TEST_F(InvariantsTest, AnAttemptGoesOnFromTheManifestThatWasStored) {
  auto store = Reopened();
  const CheckpointRecord row = SaveCheckpoint("r", 2);
  ASSERT_TRUE(store->Commit({.checkpoints = {row}}).ok());
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  WriteText(row.dir + "/MANIFEST.json",
            R"({"step": 2, "epoch": 1, "data": {"epoch": 0, "micro_batch": 7}, "files": {}})");
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("goes_on_from_its_checkpoint", "checkpoints"));
}

// Whether or not there is a row: an extension goes by the folders.
TEST_F(InvariantsTest, CheckpointsOfAnEndedJobAreReadToTheLastByte) {
  auto store = Reopened();
  const CheckpointRecord row = SaveCheckpoint("s", 4, "weights");
  EXPECT_THAT(ChecksThatFoundAtAPace(*store), ElementsAre());
  WriteText(row.dir + "/weights", "weightz");
  EXPECT_THAT(ChecksThatFoundAtAPace(*store), ElementsAre("checkpoints"));
  ASSERT_TRUE(store->Commit({.checkpoints = {row}}).ok());
  EXPECT_THAT(ChecksThatFoundAtAPace(*store), ElementsAre("checkpoints"));
  fs::remove_all(dir_ + "/jobs/s/checkpoints");  // As retention does.
  EXPECT_THAT(ChecksThatFoundAtAPace(*store), ElementsAre());
}

// Another one in its place, whole by its own manifest. One that is known to be damaged is not
// looked at again.
TEST_F(InvariantsTest, ACheckpointIsTheOneOfItsRow) {
  auto store = Reopened();
  CheckpointRecord row = SaveCheckpoint("s", 4);
  ASSERT_TRUE(store->Commit({.checkpoints = {row}}).ok());
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  SaveCheckpoint("s", 4, "v");
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("checkpoints"));
  row.state = CheckpointRecord::kCorrupt;
  ASSERT_TRUE(store->Commit({.checkpoints = {row}}).ok());
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
}

// A worker removes older ones, never the newest.
TEST_F(InvariantsTest, TheNewestCheckpointOfAJobThatHasNotEndedIsThere) {
  auto store = Reopened();
  const CheckpointRecord older = SaveCheckpoint("r", 4), newest = SaveCheckpoint("r", 6);
  ASSERT_TRUE(store->Commit({.checkpoints = {older, newest}}).ok());
  fs::remove_all(older.dir);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  fs::remove_all(newest.dir);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("checkpoints"));
}

// A process that carries the mark of an attempt.
TEST_F(InvariantsTest, AProcessIsOfAnAttemptThatIsOpen) {
  auto store = Reopened();
  const auto of = [&](const std::string& attempt) {
    const pid_t pid =
        Spawn({.argv = {"/bin/sleep", "60"}, .environment = {"SNUG_ATTEMPT=" + attempt}}).value();
    while (AttemptOf(pid).value() != attempt) absl::SleepFor(absl::Milliseconds(1));
    const absl::Cleanup end = [pid] {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    };
    return ChecksThatFound(*store);
  };
  EXPECT_THAT(of(AttemptDir(dir_, "r", 2)), ElementsAre());
  EXPECT_THAT(of(AttemptDir(dir_, "r", 1)), ElementsAre("processes_of_open_attempts"));
  EXPECT_THAT(of(AttemptDir(dir_, "nobody", 1)), ElementsAre("processes_of_open_attempts"));
  EXPECT_THAT(of(AttemptDir(dir_ + "-other", "r", 1)), ElementsAre());
}

// Its attempt is closed and it ends while the store is looked through: no violation.
TEST_F(InvariantsTest, AProcessThatEndsMeanwhileIsNoStray) {
  auto store = Reopened();
  const std::string attempt = AttemptDir(dir_, "r", 1);
  const pid_t pid =
      Spawn({.argv = {"/bin/sleep", "0.5"}, .environment = {"SNUG_ATTEMPT=" + attempt}}).value();
  while (AttemptOf(pid).value() != attempt) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  waitpid(pid, nullptr, 0);
}

TEST_F(InvariantsTest, AStartTellsInTheMetrics) {
  Write("UPDATE reservations SET bytes=1001");
  Metrics metrics;
  ExamineAtStart(*Reopened(), APremises(), metrics);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("\nsnug_store_findings{check=\"promises_within_capacity\"} 1\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("\nsnug_store_findings{check=\"one_open_attempt\"} 0\n"));
}

}  // namespace
}  // namespace snug::server
