#include "server/job/job_store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "server/job/job_ref.h"
#include "server/job/names.h"
#include "server/job/schema.h"
#include "server/job/store_rows.h"
#include "tests/server/job/store_fixture.h"

namespace snug::server {
namespace {

TEST_F(JobStoreTest, WhatWasCommittedIsLoadedAgain) {
  {
    auto store = Open().value();
    JobRecord job = AJob("a", 7);
    job.train_data = "/d";
    job.infra_failures = 2;
    AttemptRecord attempt = NewAttempt("a", 1);
    attempt.cap_bytes = 123;
    ASSERT_TRUE(CreateJob(*store, job, {"r", "hash", "a", 99}).ok());
    Change change{.job = &job, .attempt = &attempt};
    change.reserve = Reservation{"cpu:0", "a", 1, 123};
    change.checkpoints = {{.job = "a", .step = 5, .epoch = 1, .dir = "/c"}};
    ASSERT_TRUE(store->Commit(change).ok());
  }
  auto store = Open().value();
  const StoredState state = store->Load().value();
  ASSERT_EQ(state.jobs.size(), 1u);
  EXPECT_EQ(state.jobs[0].order, 7);
  EXPECT_EQ(state.jobs[0].job.spec().model(), "/m");
  EXPECT_EQ(state.jobs[0].train_data, "/d");
  EXPECT_EQ(state.jobs[0].infra_failures, 2);
  ASSERT_EQ(state.open_attempts.size(), 1u);
  EXPECT_EQ(state.open_attempts[0].plan.name(), "keep");
  EXPECT_EQ(state.open_attempts[0].cap_bytes, 123);
  EXPECT_EQ(state.reservations.at(0).bytes, 123);
  EXPECT_EQ(KnownRequest(*store, "r", 99).value().body_sha256, "hash");
  EXPECT_FALSE(KnownRequest(*store, "r", 100));
  EXPECT_EQ(state.last_order, 7);
  EXPECT_EQ(state.counts.at(Job::STATE_QUEUED), 1);
  EXPECT_EQ(store->boot_epoch(), 2);
}

TEST_F(JobStoreTest, DrainedDevicesAreRemembered) {
  {
    auto store = Open().value();
    ASSERT_TRUE(store->Commit({.drain = DrainRecord{.device = "cpu:0"}}).ok());
    ASSERT_TRUE(store->Commit({.drain = DrainRecord{.device = "GPU-a", .move = true}}).ok());
    ASSERT_TRUE(store->Commit({.drain = DrainRecord{.device = "GPU-b"}}).ok());
    ASSERT_TRUE(store->Commit({.drain = DrainRecord{.device = "GPU-b", .drained = false}}).ok());
  }
  const std::vector<DrainRecord> drains = Open().value()->Load().value().drains;
  ASSERT_EQ(drains.size(), 2u);  // By their ids.
  EXPECT_EQ(drains[0].device, "GPU-a");
  EXPECT_TRUE(drains[0].move);
  EXPECT_EQ(drains[1].device, "cpu:0");
  EXPECT_FALSE(drains[1].move);
}

// The process is killed right after Commit returned: nothing is flushed by a destructor.
TEST_F(JobStoreTest, CommittedJobSurvivesAKill) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = Open().value();
    JobRecord job = AJob("a", 1);
    _exit(store->Commit({.job = &job}).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(Open().value()->Load().value().jobs.size(), 1u);
}

TEST_F(JobStoreTest, TerminalJobCannotChangeItsState) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  job.job.set_state(Job::STATE_FAILED);
  ASSERT_TRUE(store->Commit({.job = &job}).ok());
  job.job.set_state(Job::STATE_QUEUED);
  EXPECT_FALSE(store->Commit({.job = &job}).ok());
  EXPECT_EQ(store->FindJob("a").value().state(), Job::STATE_FAILED);
  EXPECT_TRUE(store->Load().value().jobs.empty());  // Ended: it is not for memory.
}

TEST_F(JobStoreTest, SecondOpenAttemptOfAJobIsRefused) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  AttemptRecord first = NewAttempt("a", 1), second = NewAttempt("a", 2);
  ASSERT_TRUE(store->Commit({.job = &job, .attempt = &first}).ok());
  EXPECT_FALSE(store->Commit({.attempt = &second}).ok());
  first.state = AttemptState::kClosed;
  ASSERT_TRUE(store->Commit({.attempt = &first}).ok());
  EXPECT_TRUE(store->Commit({.attempt = &second}).ok());
}

// The reservation of an unknown kind of row fails in the middle: the job row must not stay.
TEST_F(JobStoreTest, FailedTransactionLeavesNothing) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  Change change{.job = &job};
  change.checkpoints = {{.job = "no such job", .step = 1, .epoch = 1}};
  EXPECT_FALSE(store->Commit(change).ok());
  EXPECT_TRUE(store->Load().value().jobs.empty());
}

TEST_F(JobStoreTest, EventsAreDense) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  Change change{.job = &job};
  change.events = {{.job = "a", .to = Job::STATE_PREPARING}, {.job = "a", .to = Job::STATE_QUEUED}};
  ASSERT_TRUE(store->Commit(change).ok());
  change.events = {{.job = "a", .from = Job::STATE_QUEUED, .to = Job::STATE_STARTING}};
  ASSERT_TRUE(store->Commit(change).ok());
  store.reset();
  auto database = Database::Open(dir_ + "/snug.db").value();
  EXPECT_EQ(database->QueryInt("SELECT count(*) FROM events").value(), 3);
  EXPECT_EQ(database->QueryInt("SELECT max(seq) FROM events").value(), 3);
}

TEST_F(JobStoreTest, FileThatIsNoDatabaseIsNotRepaired) {
  const std::string junk(8192, 'x');
  std::ofstream(dir_ + "/snug.db") << junk;
  EXPECT_TRUE(absl::IsDataLoss(Open().status())) << Open().status();
  std::ifstream file(dir_ + "/snug.db");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), junk);
}

TEST_F(JobStoreTest, DatabaseOfAnotherProgramIsRefused) {
  Database::Open(dir_ + "/snug.db").value()->Execute("CREATE TABLE t(x)").IgnoreError();
  EXPECT_TRUE(absl::IsDataLoss(Open().status()));
}

// F-15
TEST_F(JobStoreTest, NewerSchemaIsRefused) {
  Open().value().reset();
  Database::Open(dir_ + "/snug.db").value()->Execute("PRAGMA user_version=99").IgnoreError();
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status()));
}

TEST_F(JobStoreTest, SecondConnectionIsLockedOut) {
  auto store = Open().value();
  EXPECT_FALSE(Open().ok());
}

// F-14
TEST_F(JobStoreTest, DamagedPageIsFoundAtTheStart) {
  {
    auto store = Open().value();
    for (int i = 1; i <= 200; ++i) {
      JobRecord job = AJob("job-" + std::to_string(i), i);
      job.job.set_reason(std::string(200, 'r'));
      ASSERT_TRUE(store->Commit({.job = &job}).ok());
    }
  }
  std::fstream file(dir_ + "/snug.db", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 * 8);
  file << std::string(4096, '\xff');
  file.close();
  EXPECT_TRUE(absl::IsDataLoss(Open().status())) << Open().status();
}

TEST_F(JobStoreTest, SpecThatIsNotTheAcceptedOneIsNoJob) {
  {
    auto store = Open().value();
    JobRecord job = AJob("a", 1);
    ASSERT_TRUE(store->Commit({.job = &job}).ok());
  }
  v1::JobSpec other;
  other.set_model("/another");
  ASSERT_TRUE(Database::Open(dir_ + "/snug.db")
                  .value()
                  ->Run("UPDATE jobs SET spec=?", {Blob{other.SerializeAsString()}})
                  .ok());
  const absl::Status read = Open().value()->Load().status();
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_THAT(std::string(read.message()), testing::HasSubstr("job a is not the one"));
}

// What is stored from then on would be gone at the next start: nothing more is acknowledged.
TEST_F(JobStoreTest, RemovedStateFolderEndsTheDaemon) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = Open().value();
    fs::remove_all(dir_);
    JobRecord job = AJob("a", 1);
    _exit(store->Commit({.job = &job}).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 74);
}

TEST_F(JobStoreTest, RemovedWalEndsTheDaemon) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = Open().value();
    fs::remove(dir_ + "/snug.db-wal");
    JobRecord job = AJob("a", 1);
    _exit(store->Commit({.job = &job}).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 74);
}

// Taken while the store is open, and put back after jobs were lost; what it replaces is kept.
TEST_F(JobStoreTest, BackupIsRestored) {
  {
    auto store = Open().value();
    JobRecord a = AJob("a", 1), b = AJob("b", 2);
    ASSERT_TRUE(store->Commit({.job = &a}).ok());
    ASSERT_TRUE(store->Backup(dir_ + "/backup.db").ok());
    EXPECT_FALSE(store->Backup(dir_ + "/backup.db").ok());  // Nothing is overwritten.
    ASSERT_TRUE(store->Commit({.job = &b}).ok());
  }
  ASSERT_TRUE(RestoreStore(dir_, dir_ + "/backup.db").ok());
  const StoredState state = Open().value()->Load().value();
  ASSERT_EQ(state.jobs.size(), 1u);
  EXPECT_EQ(state.jobs[0].key(), "a");
  size_t kept = 0;
  for (const auto& file : fs::directory_iterator(dir_))
    kept += file.path().filename().string().find("snug.db.replaced-") == 0 ? 1 : 0;
  EXPECT_EQ(kept, 1u);
}

TEST_F(JobStoreTest, FileThatIsNoBackupIsNotRestored) {
  std::ofstream(dir_ + "/junk") << std::string(8192, 'x');
  Open().value().reset();
  EXPECT_FALSE(RestoreStore(dir_, dir_ + "/junk").ok());
  EXPECT_TRUE(Open().ok());
}

// F-66: of the clock's times 500, 500 again, and 100 after it was set back.
TEST_F(JobStoreTest, TimesOfEventsRiseWhateverTheClockDoes) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  ASSERT_TRUE(store->Commit({.job = &job}).ok());
  for (const int64_t now_us : {500, 500, 100, 900}) {
    Change change{.job = &job};
    change.events.push_back({.job = "a", .to = Job::STATE_QUEUED, .wall_us = now_us});
    ASSERT_TRUE(store->Commit(change).ok());
  }
  const auto times = store->Ask<std::vector<int64_t>>([](Database& database) {
    std::vector<int64_t> times;
    const absl::Status read =
        database.Query("SELECT wall_us FROM events ORDER BY seq", [&](const Row& row) {
          times.push_back(row.Int(0));
          return absl::OkStatus();
        });
    return read.ok() ? absl::StatusOr<std::vector<int64_t>>(times) : read;
  });
  EXPECT_THAT(times.value(), testing::ElementsAre(500, 501, 502, 900));
}

// F-57: one request makes one job, whoever asks again and however soon.
TEST_F(JobStoreTest, OneRequestMakesOneJob) {
  auto store = Open().value();
  const auto create = [&](const std::string& id, const std::string& request) {
    auto job = std::make_shared<NewJob>();
    job->record = AJob(id, id[0]);
    job->event = {.job = id, .to = Job::STATE_PREPARING, .wall_us = 10};
    job->request = RequestRecord{request, "body", id, 99};
    absl::Notification done;
    absl::Status result;
    store->Create(job, [&](std::shared_ptr<NewJob>, const absl::Status& status) {
      result = status;
      done.Notify();
    });
    done.WaitForNotification();
    EXPECT_TRUE(result.ok() || absl::IsAlreadyExists(result)) << result;
    return job->known ? job->known->job : result.ok() ? "new" : "taken";
  };
  EXPECT_EQ(create("a", "r1"), "new");
  EXPECT_EQ(create("b", "r1"), "a");
  EXPECT_EQ(create("a", "r2"), "taken");
  EXPECT_EQ(create("c", "r3"), "new");
  EXPECT_EQ(store->Load().value().jobs.size(), 2u);
}

// The store of a daemon of schema 1, as it was dumped then: a finished, a cancelled and a queued
// job. Nothing of it is lost on the way here, and what it was is kept beside it.
TEST_F(JobStoreTest, StoreOfSchemaOneIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_1.sql"));
  {
    auto store = Open().value();
    const StoredState state = store->Load().value();
    ASSERT_EQ(state.jobs.size(), 1u);
    EXPECT_EQ(state.jobs[0].job.spec().priority(), 3);
    EXPECT_EQ(state.jobs[0].job.priority(), 3);
    EXPECT_EQ(store->SearchJob("steps-3", DaemonPrincipal()).value().state(), Job::STATE_SUCCEEDED);
    EXPECT_EQ(store->SearchJob("steps-1000", DaemonPrincipal()).value().state(),
              Job::STATE_CANCELLED);
  }
  auto now = Database::Open(dir_ + "/snug.db").value();
  EXPECT_EQ(now->QueryInt("PRAGMA user_version").value(), kSchemaVersion);
  EXPECT_EQ(now->QueryInt("SELECT jobs FROM counts").value(), 3);
  EXPECT_EQ(
      now->QueryInt("SELECT count(*) FROM jobs WHERE created_us>0 AND display_name<>''").value(),
      3);
  auto before =
      Database::Open(absl::StrCat(dir_, "/snug.db.before-schema-", kSchemaVersion)).value();
  EXPECT_EQ(before->QueryInt("PRAGMA user_version").value(), 1);
  EXPECT_EQ(before->QueryInt("SELECT count(*) FROM jobs").value(), 3);
}

// Changes that wait together go to the disk together, and one that fails takes no other with it.
TEST_F(JobStoreTest, ChangesOfABatchAreJudgedOneByOne) {
  auto store = Open().value();
  std::atomic<int> stored = 0, taken = 0, told = 0;
  constexpr int kJobs = 1000;
  for (int i = 1; i <= kJobs; ++i) {
    auto job = std::make_shared<NewJob>();
    job->record = AJob("job-" + std::to_string(i % 900), i);
    job->event = {.job = job->record.key(), .to = Job::STATE_PREPARING};
    store->Create(job, [&](std::shared_ptr<NewJob>, const absl::Status& status) {
      (status.ok() ? stored : taken) += 1;
      ++told;
    });
  }
  store.reset();  // Waits for all.
  EXPECT_EQ(told, kJobs);
  EXPECT_EQ(stored, 900);
  EXPECT_EQ(taken, 100);
  EXPECT_EQ(Open().value()->Load().value().jobs.size(), 900u);
}

// The store of a daemon of schema 3, as it was dumped then: two finished jobs and a paused one, a
// token, a drained device.
TEST_F(JobStoreTest, StoreOfSchemaThreeIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_3.sql"));
  {
    auto store = Open().value();
    EXPECT_EQ(store->Load().value().jobs.size(), 1u);
    EXPECT_EQ(store->Load().value().drains.size(), 1u);
  }
  auto now = Database::Open(dir_ + "/snug.db").value();
  EXPECT_EQ(now->QueryInt("PRAGMA user_version").value(), kSchemaVersion);
  EXPECT_EQ(now->QueryInt("SELECT count(*) FROM jobs").value(), 3);
  EXPECT_EQ(now->QueryInt("SELECT count(*) FROM tokens").value(), 1);
  EXPECT_EQ(now->QueryInt("SELECT count(*) FROM webhooks").value(), 0);
}

// A tenant's job, one of the socket that extends it, and one that begins with it.
void ExpectReferences(const std::unique_ptr<JobStore>& store) {
  const Job reds = store->FindJob("steps-3-ccf553").value().job;
  EXPECT_EQ(reds.name(), "tenants/red/jobs/steps-3-ccf553");
  const Job extension = store->FindJob("steps-4-8e205a").value().job;
  EXPECT_EQ(extension.name(), "tenants/default/jobs/steps-4-8e205a");
  EXPECT_EQ(extension.parent_job(), reds.name());
  EXPECT_EQ(ParentOf(extension), reds.name());
  const Job paused = store->Load().value().jobs.at(0).job;
  EXPECT_EQ(paused.parent_job(), extension.id());  // Of its own tenant.
  EXPECT_EQ(paused.spec().lora().init_adapter(), reds.name() + "/checkpoints/2");
  EXPECT_TRUE(BeginsWith(paused, reds));
  EXPECT_EQ(store->SearchJob("steps-3", {.tenant = "red"}).value().key(), reds.id());
  EXPECT_EQ(store->FindSuccessor(reds.name()).value(), paused.id());
  EXPECT_EQ(store->FindSuccessor(extension.name()).value(), "");  // A parent alone.
}

// The store of a daemon of schema 5, to which ids were one set. By names they still do.
TEST_F(JobStoreTest, StoreOfSchemaFiveIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_5.sql"));
  ExpectReferences(Open().value());
}

// That store once a daemon of schema 6 had it: nobody had noted who begins with whom.
TEST_F(JobStoreTest, StoreOfSchemaSixIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_6.sql"));
  ExpectReferences(Open().value());
}

// That store once a daemon of schema 7 had it.
TEST_F(JobStoreTest, StoreOfSchemaSevenIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_7.sql"));
  ExpectReferences(Open().value());
}

// That store once a daemon of schema 8 had it. One of its requests has not expired.
TEST_F(JobStoreTest, StoreOfSchemaEightIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_8.sql"));
  const auto store = Open().value();
  ExpectReferences(store);
  const std::optional<RequestRecord> known =
      KnownRequest(*store, "6506b2ee-d50c-42d8-a480-b51fc0ef828d", 1);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->job, "steps-3-ccf553");
  EXPECT_EQ(known->body_sha256, "af52561bdacf7dca286f0b2401bf77a4ea21e7c5cdcdfa36dd72e158b1d9a35f");
  EXPECT_EQ(known->expires_us, 4102444800000000);
}

TEST_F(JobStoreTest, WhoBeginsWithAnotherIsFoundAsLongAsItIsThere) {
  auto store = Open().value();
  JobRecord base = AJob("base", 1), child = AJob("child", 2);
  child.job.mutable_spec()->set_model("base");
  child.job.set_state(Job::STATE_SUCCEEDED);
  for (const JobRecord* job : {&base, &child}) ASSERT_TRUE(store->Commit({.job = job}).ok());
  EXPECT_EQ(store->FindSuccessor(JobName("default", "base")).value(), "child");
  EXPECT_EQ(store->FindSuccessor(JobName("red", "base")).value(), "");
  EXPECT_EQ(store->FindSuccessor(JobName("default", "child")).value(), "");
  ASSERT_TRUE(store->Commit({.deleted = "child"}).ok());
  EXPECT_EQ(store->FindSuccessor(JobName("default", "base")).value(), "");
}

// The store of a daemon of schema 4: that of schema 3 after its upgrade, with a webhook's call due.
// What other tables say of jobs is still about them, and held to them.
TEST_F(JobStoreTest, StoreOfSchemaFourIsTakenAlong) {
  ASSERT_NO_FATAL_FAILURE(MakeFromDump("schema_4.sql"));
  {
    auto store = Open().value();
    const StoredState state = store->Load().value();
    ASSERT_EQ(state.jobs.size(), 1u);
    EXPECT_EQ(state.jobs[0].key(), "steps-1000-step-ms-100-60caf9");
    EXPECT_EQ(state.jobs[0].order, 2);
    EXPECT_EQ(state.last_order, 3);
    EXPECT_EQ(store->SearchJob("steps-4", DaemonPrincipal()).value().job.labels().at("team"),
              "blue");
    CheckpointRecord of_nobody{.job = "nobody"};
    EXPECT_FALSE(store->Commit({.checkpoints = {of_nobody}}).ok());
    JobRecord ended = store->SearchJob("steps-3", DaemonPrincipal()).value();
    ended.job.set_state(Job::STATE_RUNNING);
    EXPECT_FALSE(store->Commit({.job = &ended}).ok());
  }
  auto now = Database::Open(dir_ + "/snug.db").value();
  EXPECT_EQ(now->QueryInt("PRAGMA user_version").value(), kSchemaVersion);
  EXPECT_EQ(now->QueryInt("SELECT jobs FROM counts").value(), 3);
  EXPECT_EQ(now->QueryInt("SELECT count(*) FROM webhooks JOIN jobs ON job=id").value(), 1);
}

// The call is due from the moment that the job has ended, in the same transaction.
TEST_F(JobStoreTest, AJobsEndMakesItsWebhooksCallDue) {
  auto store = Open().value();
  const auto due = [&](int64_t now_us) {
    return store
        ->Ask<std::vector<WebhookRecord>>(
            [&](Database& database) { return DueWebhooks(database, now_us, absl::Hours(1)); })
        .value();
  };
  for (const char* id : {"quiet", "told"}) {
    JobRecord job = AJob(id, id[0]);
    if (id[0] == 't') job.job.mutable_spec()->set_webhook("https://a.b/");
    ASSERT_TRUE(store->Commit({.job = &job}).ok());
    EXPECT_TRUE(due(1000).empty());
    Change change{.job = &job};
    ASSERT_TRUE(MoveJob(job, Job::STATE_FAILED, "it is over", 500, change).ok());
    ASSERT_TRUE(store->Commit(change).ok());
  }
  EXPECT_TRUE(due(499).empty());
  ASSERT_EQ(due(500).size(), 1u);
  WebhookRecord record = due(500)[0];
  EXPECT_EQ(record.job, "told");
  record.due_us = 700;
  record.tries = 1;
  ASSERT_TRUE(store->Commit({.webhook = record}).ok());
  EXPECT_TRUE(due(699).empty());
  EXPECT_EQ(due(700)[0].tries, 1);
  ASSERT_TRUE(store->Commit({.deleted = "told"}).ok());
  EXPECT_TRUE(due(1000).empty());
}

// F-66: the job ends at 500, and no call waits for longer than 400: at 99 the clock was set back.
TEST_F(JobStoreTest, ACallWaitsNoLongerThoughTheClockIsSetBack) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  job.job.mutable_spec()->set_webhook("https://a.b/");
  ASSERT_TRUE(store->Commit({.job = &job}).ok());
  Change change{.job = &job};
  ASSERT_TRUE(MoveJob(job, Job::STATE_FAILED, "it is over", 500, change).ok());
  ASSERT_TRUE(store->Commit(change).ok());
  const auto due = [&](int64_t now_us) {
    return store
        ->Ask<std::vector<WebhookRecord>>([&](Database& database) {
          return DueWebhooks(database, now_us, absl::Microseconds(400));
        })
        .value()
        .size();
  };
  EXPECT_EQ(due(100), 0u);
  EXPECT_EQ(due(99), 1u);
}

}  // namespace
}  // namespace snug::server
