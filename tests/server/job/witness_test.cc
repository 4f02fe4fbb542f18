// A store that has lost something is told from a whole one.
#include "server/job/witness.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/server/job/store_fixture.h"

namespace snug::server {
namespace {

class WitnessTest : public JobStoreTest {
 protected:
  // Two jobs, of which the first is in the database's file and the second in its WAL alone, as a
  // killed daemon leaves them.
  void StoreTwoJobs() {
    const pid_t child = fork();
    if (child == 0) {
      auto store = Open().value();
      const bool first = Add(*store, "a", 1);
      store->Maintain();
      store->Load().status().IgnoreError();  // After it.
      const bool copied = Copy("snug.db", "old.db");
      _exit(first && copied && Add(*store, "b", 2) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }
  static bool Add(JobStore& store, const std::string& id, int64_t order) {
    JobRecord job = AJob(id, order);
    Change change{.job = &job};
    change.events = {{.job = id, .to = Job::STATE_QUEUED}};
    return store.Commit(change).ok();
  }
  bool Copy(const std::string& from, const std::string& to) {
    return fs::copy_file(dir_ + "/" + from, dir_ + "/" + to, fs::copy_options::overwrite_existing);
  }
  absl::StatusOr<size_t> JobsAfter(bool accept_loss) {
    auto store =
        JobStore::Open({.state_dir = dir_, .ballast_bytes = 4096, .accept_loss = accept_loss});
    if (!store.ok()) return store.status();
    return (*store)->Load().value().jobs.size();
  }
  // Refused with these words; going on with what is left is a decision, made once.
  void ExpectLoss(const std::string& words, size_t left) {
    const absl::StatusOr<size_t> refused = JobsAfter(false);
    EXPECT_TRUE(absl::IsDataLoss(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), testing::HasSubstr(words));
    EXPECT_EQ(JobsAfter(true).value(), left);
    EXPECT_EQ(JobsAfter(false).value(), left);
  }
};

TEST_F(WitnessTest, WholeStoreAgreesWithIt) {
  StoreTwoJobs();
  EXPECT_EQ(JobsAfter(false).value(), 2u);
}

TEST_F(WitnessTest, MissingDatabaseIsTold) {
  StoreTwoJobs();
  fs::remove(dir_ + "/snug.db");
  fs::remove(dir_ + "/snug.db-wal");
  ExpectLoss("is missing or empty, and has held 2 jobs", 0);
}

TEST_F(WitnessTest, EmptiedDatabaseIsTold) {
  StoreTwoJobs();
  fs::resize_file(dir_ + "/snug.db", 0);
  fs::remove(dir_ + "/snug.db-wal");
  ExpectLoss("is missing or empty, and has held 2 jobs", 0);
}

// F-14
TEST_F(WitnessTest, DatabaseWithoutItsWalIsTold) {
  StoreTwoJobs();
  fs::remove(dir_ + "/snug.db-wal");
  ExpectLoss("ends at change 1, and has been at 2", 1);
}

// One bit of the WAL: SQLite drops what follows, and says nothing.
TEST_F(WitnessTest, DamagedWalIsTold) {
  StoreTwoJobs();
  std::fstream file(dir_ + "/snug.db-wal", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(32 + 24 + 100);
  file.put('\x55');
  file.close();
  ExpectLoss("was rolled back, or its -wal file was removed or damaged", 1);
}

TEST_F(WitnessTest, RolledBackDatabaseIsTold) {
  StoreTwoJobs();
  fs::remove(dir_ + "/snug.db-wal");
  Copy("old.db", "snug.db");
  ExpectLoss("ends at change 1, and has been at 2", 1);
}

TEST_F(WitnessTest, AnotherInstancesDatabaseIsTold) {
  StoreTwoJobs();
  fs::create_directories(dir_ + "/other");
  JobStore::Open({.state_dir = dir_ + "/other", .ballast_bytes = 0}).value().reset();
  fs::remove(dir_ + "/snug.db-wal");
  Copy("other/snug.db", "snug.db");
  ExpectLoss("is of another instance", 0);
}

// A folder of a version that kept no witness, whose database is gone: its jobs' folders tell.
TEST_F(WitnessTest, FoldersOfJobsWithoutADatabaseAreTold) {
  fs::create_directories(dir_ + "/jobs/old-job");
  ExpectLoss("jobs/ beside it holds folders", 0);
}

// Half of what it says was written when the power went: the other half holds.
TEST_F(WitnessTest, TornWriteLeavesTheOneBefore) {
  Witness::Open(dir_ + "/w").value()->Write({"i", 1, 1}).IgnoreError();
  Witness::Open(dir_ + "/w").value()->Write({"i", 2, 1}).IgnoreError();
  std::fstream file(dir_ + "/w", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20);
  file << "xxxx";
  file.close();
  EXPECT_EQ(Witness::Open(dir_ + "/w").value()->last()->sequence, 1);
}

}  // namespace
}  // namespace snug::server
