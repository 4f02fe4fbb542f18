// The API's calls without a door: what they answer, to whom, and that many threads may call at
// once (under ThreadSanitizer in ./check --threads).
#include "server/api/api.h"
#include "proto/snug/enum_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/server/api/api_fixture.h"

namespace snug::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <typename Request>
Request Named(const std::string& id) {
  Request request;
  request.set_id(id);
  return request;
}

// The latest state that it has heard.
class LastState : public JobWatcher {
 public:
  void OnChange(const JobPtr& job) override { state_ = job->state(); }
  v1::Job::State state() const { return state_; }

 private:
  std::atomic<v1::Job::State> state_ = v1::Job::STATE_UNSPECIFIED;
};

TEST_F(ApiTest, AJobFromItsRequestToItsOutput) {
  const v1::Job made = Call(&Api::CreateJob, root_, Request("steps=3")).value();
  const auto watcher = std::make_shared<LastState>();
  const JobPtr begun =
      api_->WatchJob(root_, Named<v1::WatchJobRequest>(made.id()), watcher).value();
  EXPECT_EQ(begun->id(), made.id());
  EXPECT_EQ(Await([](const v1::Job& job) { return IsTerminal(job.state()); }, made.id()).state(),
            v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(watcher->state(), v1::Job::STATE_SUCCEEDED);

  const auto logs = api_->GetJobLogs(root_, Named<v1::GetJobLogsRequest>(made.id())).value();
  std::string log;
  for (auto next = logs().value(); next.kind == Next<v1::LogChunk>::kMessage; next = logs().value())
    log += next.message.text();
  EXPECT_EQ(log, "fake worker, from step 0\n");

  const auto output = api_->DownloadJob(root_, Named<v1::DownloadJobRequest>(made.id())).value();
  int64_t promised = 0, bytes = 0;
  for (auto next = output().value(); next.kind == Next<v1::FileChunk>::kMessage;
       next = output().value()) {
    promised += next.message.file_bytes();
    bytes += static_cast<int64_t>(next.message.content().size());
  }
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, promised);
}

// Whichever way somebody asks for another's job, it does not exist; a stream does not begin.
TEST_F(ApiTest, AnothersJobDoesNotExistInAnyCall) {
  const std::string id = Call(&Api::CreateJob, root_, Request("steps=1")).value().id();
  const auto not_found = [](const absl::Status& status) { return absl::IsNotFound(status); };
  EXPECT_TRUE(not_found(Call(&Api::GetJob, tenant_, Named<v1::GetJobRequest>(id)).status()));
  EXPECT_TRUE(not_found(Call(&Api::CancelJob, tenant_, Named<v1::CancelJobRequest>(id)).status()));
  EXPECT_TRUE(not_found(Call(&Api::DeleteJob, tenant_, Named<v1::DeleteJobRequest>(id)).status()));
  EXPECT_TRUE(not_found(Call(&Api::RerunJob, tenant_, Named<v1::RerunJobRequest>(id)).status()));
  EXPECT_TRUE(not_found(api_->GetJobLogs(tenant_, Named<v1::GetJobLogsRequest>(id)).status()));
  EXPECT_TRUE(not_found(api_->DownloadJob(tenant_, Named<v1::DownloadJobRequest>(id)).status()));
  v1::SampleRequest sample = Named<v1::SampleRequest>(id);
  sample.add_prompts()->set_text("a");
  EXPECT_TRUE(not_found(api_->Sample(tenant_, sample).status()));
  const auto watcher = std::make_shared<LastState>();
  EXPECT_TRUE(not_found(api_->WatchJob(tenant_, Named<v1::WatchJobRequest>(id), watcher).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(api_->BackupStore(tenant_, {}).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(api_->MayScrape(tenant_)));
  EXPECT_TRUE(api_->MayScrape(root_).ok());
  EXPECT_EQ(Call(&Api::ListJobs, tenant_, v1::ListJobsRequest()).value().jobs_size(), 0);
  const auto over = [](const v1::Job& job) { return IsTerminal(job.state()); };
  EXPECT_EQ(Await(over, id).state(), v1::Job::STATE_SUCCEEDED);
}

// Each end of an upload is one line of the audit log; so is what may not be begun.
TEST_F(ApiTest, EveryEndOfAnUploadIsAudited) {
  v1::UploadHeader header;
  header.set_filename("a.jsonl");
  const Principal local = {.uid = 1234, .gid = 1234};  // Whose files lie on this machine.
  EXPECT_EQ(api_->UploadFile(local, header).status().code(), absl::StatusCode::kFailedPrecondition);
  Principal viewer = tenant_;
  viewer.role = v1::Token::ROLE_VIEWER;
  EXPECT_TRUE(absl::IsPermissionDenied(api_->UploadFile(viewer, header).status()));
  { const auto dropped = api_->UploadFile(tenant_, header).value(); }
  const auto whole = api_->UploadFile(tenant_, header).value();
  ASSERT_TRUE(whole->Append("{\"text\": \"a\"}\n").ok());
  const v1::File file = whole->Finish().value();
  EXPECT_EQ(Call(&Api::ListFiles, tenant_, v1::ListFilesRequest()).value().files(0).id(),
            file.id());
  EXPECT_THAT(Call(&Api::ListFiles, root_, v1::ListFilesRequest()).value().files(), IsEmpty());
  const std::string log = ReadText(dir_ + "/audit.log");
  const std::vector<std::string> lines = absl::StrSplit(log, '\n', absl::SkipEmpty());
  const auto line = [](const std::string& code) {
    return AllOf(HasSubstr("\"UploadFile\""), HasSubstr(code));
  };
  EXPECT_THAT(lines, ElementsAre(line("FAILED_PRECONDITION"), line("PERMISSION_DENIED"),
                                 line("CANCELLED"), line("files/" + file.id())));
}

// Every call is answered exactly once, and what is told of a job is of that job.
TEST_F(ApiTest, ManyThreadsCallAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 6;
  std::atomic<int> asked = 0, answered = 0;
  const auto ask = [&](auto method, const Principal& who, const auto& request) {
    ++asked;
    const auto response = Call(method, who, request);
    ++answered;
    return response;
  };
  const auto caller = [&](int number) {
    for (int round = 0; round < kRounds; ++round) {
      v1::CreateJobRequest create = Request("steps=2 step_ms=1");
      create.set_job_id(absl::StrCat("job-", number, "-", round));
      const absl::StatusOr<v1::Job> made = ask(&Api::CreateJob, root_, create);
      ASSERT_TRUE(made.ok()) << made.status();
      EXPECT_EQ(made->id(), create.job_id());
      const auto watcher = std::make_shared<LastState>();
      EXPECT_TRUE(api_->WatchJob(root_, Named<v1::WatchJobRequest>(made->id()), watcher).ok());
      v1::UpdateJobRequest update = Named<v1::UpdateJobRequest>(made->id());
      (*update.mutable_labels())["of"] = absl::StrCat(number);
      static_cast<void>(ask(&Api::UpdateJob, root_, update));  // It may have ended.
      EXPECT_EQ(ask(&Api::GetJob, root_, Named<v1::GetJobRequest>(made->id()))->id(), made->id());
      EXPECT_TRUE(ask(&Api::ListJobs, root_, v1::ListJobsRequest()).ok());
      EXPECT_TRUE(ask(&Api::GetServerInfo, tenant_, v1::GetServerInfoRequest()).ok());
      EXPECT_FALSE(ask(&Api::GetJob, tenant_, Named<v1::GetJobRequest>(made->id())).ok());
      if (round % 2 == 1) {
        const auto cancelled = ask(&Api::CancelJob, root_, Named<v1::CancelJobRequest>(made->id()));
        EXPECT_TRUE(cancelled.ok() || absl::IsFailedPrecondition(cancelled.status()));
      }
      const auto logs = api_->GetJobLogs(root_, Named<v1::GetJobLogsRequest>(made->id()));
      EXPECT_TRUE(logs.ok() && (*logs)().ok());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(caller, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, asked);
  for (int i = 0; i < kThreads; ++i)
    for (int round = 0; round < kRounds; ++round) {
      const std::string id = absl::StrCat("job-", i, "-", round);
      const v1::Job job = Await([](const v1::Job& now) { return IsTerminal(now.state()); }, id);
      EXPECT_TRUE(IsTerminal(job.state())) << id << " " << EnumWord(job.state());
    }
}

// All of those threads are taken: who looks through the store or reads a job's metrics needs none.
TEST_F(ApiTest, WhatReadsForLongIsNotForTheQuickThreads) {
  absl::Notification go_on;
  for (int i = 0; i < 4; ++i) pool_.Post([&] { go_on.WaitForNotification(); });
  EXPECT_TRUE(Call(&Api::CheckStore, root_, v1::CheckStoreRequest()).ok());
  v1::GetMetricHistoryRequest history;
  history.set_id("none");
  EXPECT_TRUE(absl::IsNotFound(Call(&Api::GetMetricHistory, root_, history).status()));
  go_on.Notify();
  pool_.Stop();  // Nobody waits any more.
}

// It holds the jobs of all tenants.
TEST_F(ApiTest, EachBackupIsAudited) {
  EXPECT_FALSE(api_->BackupStore(tenant_, {}).ok());
  EXPECT_TRUE(api_->BackupStore(root_, {}).ok());
  const std::string log = ReadText(dir_ + "/audit.log");
  EXPECT_THAT(log, HasSubstr(R"("principal":"tenant:lab","method":"BackupStore")"));
  EXPECT_THAT(log, HasSubstr(R"("method":"BackupStore","resource":"","status":"OK")"));
}

}  // namespace
}  // namespace snug::server
