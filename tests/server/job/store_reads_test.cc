// What is asked of the store about any job; deleting.
#include "server/job/store_reads.h"

#include "server/job/job_key.h"
#include "tests/server/job/store_fixture.h"

namespace snug::server {
namespace {

using ::testing::HasSubstr;

// By id, by beginning of id; a whole id wins over longer ones that begin with it.
TEST_F(JobStoreTest, FindsJobsByTheirBeginning) {
  auto store = Open().value();
  int64_t order = 0;
  for (const char* id : {"ab", "abc", "abd", "b"}) {
    JobRecord job = AJob(id, ++order);
    job.job.set_state(Job::STATE_FAILED);
    ASSERT_TRUE(store->Commit({.job = &job}).ok());
  }
  const Principal root = DaemonPrincipal();
  EXPECT_EQ(store->SearchJob("ab", root).value().key(), "ab");
  EXPECT_EQ(store->SearchJob("abc", root).value().key(), "abc");
  EXPECT_EQ(ReasonOf(store->SearchJob("a", root).status()), "JOB_AMBIGUOUS");
  EXPECT_EQ(ReasonOf(store->SearchJob("c", root).status()), "JOB_NOT_FOUND");
  EXPECT_EQ(store->FindJob("ab").value().key(), "ab");
  EXPECT_EQ(ReasonOf(store->FindJob("a").status()), "JOB_NOT_FOUND");
}

// F-58. However many others begin so.
TEST_F(JobStoreTest, EachTenantFindsHisOwnOfOneId) {
  auto store = Open().value();
  int64_t order = 0;
  const auto put = [&](const char* tenant, const std::string& id) {
    JobRecord job = AJob(id, ++order);
    job.job.set_owner(absl::StrCat("tenant:", tenant));
    if (std::string key = KeyFor(tenant, id); key != id) job.job.set_key(std::move(key));
    ASSERT_TRUE(store->Commit({.job = &job}).ok());
  };
  for (int i = 0; i < 1001; ++i) put("default", absl::StrCat("tune-", i));
  put("red", "tune");
  put("red", "tune-red-only");
  const Principal blue{.tenant = "blue"}, red{.tenant = "red"};
  const Principal third{.tenant = "ops", .role = v1::Token::ROLE_OPERATOR};
  const auto found = [&](const Principal& who, const char* text) {
    const absl::StatusOr<JobRecord> job = store->SearchJob(text, who);
    return job.ok() ? job->key() : std::string(job.status().message());
  };
  EXPECT_EQ(found(third, "tune"), "tune.red");  // There is no other yet.
  put("blue", "tune");
  EXPECT_EQ(found(blue, "tune"), "tune.blue");
  EXPECT_EQ(found(red, "tune"), "tune.red");
  EXPECT_THAT(found(third, "tune"), HasSubstr("is the id of jobs of 2 tenants"));
  EXPECT_THAT(found(DaemonPrincipal(), "tune"), HasSubstr("is the id of jobs of 2 tenants"));
  put("default", "tune");
  EXPECT_THAT(found(third, "tune"), HasSubstr("is the id of jobs of 3 tenants"));
  EXPECT_EQ(found(DaemonPrincipal(), "tune"), "tune");
  EXPECT_EQ(found(red, "tune-"), "tune-red-only.red");
  EXPECT_THAT(found(third, "tune-"), HasSubstr("begins the ids of 1000 jobs"));
  // Whose own jobs come behind all others' does not wait for a walk through those.
  put("blue", "tune-z");
  EXPECT_EQ(found(blue, "tune-"), "tune-z.blue");
}

// F-58. A store of a version before keys has a tenant's job under its id alone.
TEST_F(JobStoreTest, AnIdThatItsTenantHasUnderAnOlderKeyIsTaken) {
  auto store = Open().value();
  JobRecord older = AJob("tune", 1);
  older.job.set_owner("tenant:red");
  ASSERT_TRUE(store->Commit({.job = &older}).ok());
  int64_t order = 1;
  const auto create = [&](const char* tenant) {
    JobRecord job = AJob("tune", ++order);
    job.job.set_owner(absl::StrCat("tenant:", tenant));
    job.job.set_key(KeyFor(tenant, "tune"));
    return store->Commit({.job = &job}).code();
  };
  EXPECT_EQ(create("red"), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(create("blue"), absl::StatusCode::kOk);
  EXPECT_EQ(create("blue"), absl::StatusCode::kOk);  // Written again: it is the same row.
  EXPECT_EQ(store->SearchJob("tune", {.tenant = "red"}).value().key(), "tune");
  EXPECT_EQ(store->SearchJob("tune", {.tenant = "blue"}).value().key(), "tune.blue");
  // Of the socket's users the key is nobody's own.
  EXPECT_EQ(ReasonOf(store->SearchJob("tune", DaemonPrincipal()).status()), "JOB_AMBIGUOUS");
}

std::vector<int64_t> Orders(const JobPage& page) {
  std::vector<int64_t> orders;
  for (const ListedJob& job : page.jobs) orders.push_back(job.order);
  return orders;
}

// Ten jobs: even ones failed, every third has a label.
TEST_F(JobStoreTest, ListsByFilterPageByPage) {
  auto store = Open().value();
  for (int i = 1; i <= 10; ++i) {
    JobRecord job = AJob("job-" + std::to_string(i), i);
    job.job.set_state(i % 2 == 0 ? Job::STATE_FAILED : Job::STATE_SUCCEEDED);
    job.job.set_display_name(i == 7 ? "seven" : "other");
    job.job.mutable_create_time()->set_seconds(i);
    if (i % 3 == 0) (*job.job.mutable_labels())["team"] = "red";
    ASSERT_TRUE(store->Commit({.job = &job}).ok());
  }
  using testing::ElementsAre;
  JobPage page = store->ListJobs({.limit = 4}).value();
  EXPECT_THAT(Orders(page), ElementsAre(10, 9, 8, 7));
  page = store->ListJobs({.after = page.next, .limit = 4}).value();
  EXPECT_THAT(Orders(page), ElementsAre(6, 5, 4, 3));
  page = store->ListJobs({.after = page.next, .limit = 4}).value();
  EXPECT_THAT(Orders(page), ElementsAre(2, 1));
  EXPECT_EQ(page.next, 0);
  page = store->ListJobs({.newest_first = false, .limit = 3}).value();
  EXPECT_THAT(Orders(page), ElementsAre(1, 2, 3));
  EXPECT_THAT(Orders(store->ListJobs({.newest_first = false, .after = page.next}).value()),
              ElementsAre(4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(Orders(store->ListJobs({.states = {Job::STATE_FAILED}}).value()),
              ElementsAre(10, 8, 6, 4, 2));
  EXPECT_THAT(Orders(store->ListJobs({.labels = {{"team", "red"}}}).value()), ElementsAre(9, 6, 3));
  EXPECT_THAT(Orders(store->ListJobs({.display_name = "seven"}).value()), ElementsAre(7));
  EXPECT_THAT(
      Orders(
          store->ListJobs({.created_from_us = 2'000'000, .created_until_us = 4'000'000}).value()),
      ElementsAre(3, 2));
  EXPECT_EQ(store->ListJobs({.limit = 1}).value().jobs[0].job->spec().model(), "");
  EXPECT_EQ(store->ListJobs({.limit = 1, .whole = true}).value().jobs[0].job->spec().model(), "/m");
}

// Its events stay: what has happened has happened.
TEST_F(JobStoreTest, DeletedJobIsGone) {
  auto store = Open().value();
  JobRecord job = AJob("a", 1);
  AttemptRecord attempt = NewAttempt("a", 1);
  attempt.state = AttemptState::kClosed;
  job.job.set_state(Job::STATE_FAILED);
  (*job.job.mutable_labels())["k"] = "v";
  ASSERT_TRUE(CreateJob(*store, job, {"r", "hash", "a", 99}).ok());
  ASSERT_TRUE(KnownRequest(*store, "r", 1));
  Change change{.attempt = &attempt};
  ASSERT_TRUE(store->Commit(change).ok());
  Change deletion{.deleted = "a"};
  deletion.events = {{.job = "a", .from = Job::STATE_FAILED}};
  ASSERT_TRUE(store->Commit(deletion).ok());
  EXPECT_TRUE(absl::IsNotFound(store->FindJob("a").status()));
  EXPECT_FALSE(KnownRequest(*store, "r", 1));
  store.reset();
  EXPECT_TRUE(Open().ok());  // The witness agrees.
}

}  // namespace
}  // namespace snug::server
