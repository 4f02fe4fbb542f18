// What is asked of the store about any job; deleting.
#include "server/job/store_reads.h"

#include "tests/server/job/store_fixture.h"

namespace snug::server {
namespace {

// By id, by beginning of id; a whole id wins over longer ones that begin with it.
TEST_F(JobStoreTest, FindsJobsByTheirBeginning) {
  auto store = Open().value();
  for (const char* id : {"ab", "abc", "abd", "b"}) {
    JobRecord job = AJob(id, id[0] * 1000 + id[1] * 10 + (id[1] != 0 ? id[2] : 0));
    job.job.set_state(Job::STATE_FAILED);
    ASSERT_TRUE(store->Commit({.job = &job}).ok());
  }
  EXPECT_EQ(store->FindJob("ab").value().id(), "ab");
  EXPECT_EQ(store->FindJob("abc").value().id(), "abc");
  EXPECT_EQ(ReasonOf(store->FindJob("a").status()), "JOB_AMBIGUOUS");
  EXPECT_EQ(ReasonOf(store->FindJob("c").status()), "JOB_NOT_FOUND");
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
  Change change{.job = &job, .attempt = &attempt};
  change.events = {{.job = "a", .to = Job::STATE_FAILED}};
  change.request = RequestRecord{"r", "hash", "a", 99};
  ASSERT_TRUE(store->Commit(change).ok());
  Change deletion{.deleted = "a"};
  deletion.events = {{.job = "a", .from = Job::STATE_FAILED}};
  ASSERT_TRUE(store->Commit(deletion).ok());
  EXPECT_TRUE(absl::IsNotFound(store->FindJob("a").status()));
  EXPECT_EQ(store->FindRequest("r", 1).value(), std::nullopt);
  store.reset();
  EXPECT_TRUE(Open().ok());  // The witness agrees.
}

}  // namespace
}  // namespace snug::server
