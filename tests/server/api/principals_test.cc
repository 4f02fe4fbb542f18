// Another user on the daemon's socket: what he may ask it for, and what he learns.
#include <gmock/gmock.h>
#include <grpcpp/create_channel_posix.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/server/api/service_fixture.h"

namespace snug::server {
namespace {

using testing::HasSubstr;

constexpr uid_t kStranger = 54321;

// A connection that the kernel knows as the stranger's: made by a thread that is him.
int ConnectAsStranger(const std::string& socket_path) {
  int fd = -1;
  std::thread([&] {
    syscall(SYS_setgroups, 0, nullptr);
    syscall(SYS_setresgid, -1, kStranger, -1);
    syscall(SYS_setresuid, -1, kStranger, -1);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      close(fd);
      fd = -1;
    }
  }).join();
  return fd;
}

class PrincipalsTest : public ServiceTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
    shared_ = dir_ + "/shared";
    WriteTinyModel(shared_ + "/model");
    WriteTinyDataset(shared_ + "/train.jsonl", 20, 30);
    WriteTinyDataset(shared_ + "/secret.jsonl", 20, 30);
    fs::permissions(shared_ + "/secret.jsonl", fs::perms::owner_read);
    fs::permissions(dir_ + "/s", fs::perms(0666));
    const int fd = ConnectAsStranger(dir_ + "/s");
    ASSERT_GE(fd, 0);
    his_ = v1::FineTuning::NewStub(grpc::CreateInsecureChannelFromFd("stranger", fd));
  }
  static v1::CreateJobRequest Job(const std::string& model, const std::string& dataset) {
    v1::CreateJobRequest request = Request("steps=2");
    request.mutable_spec()->set_model(model);
    request.mutable_spec()->set_dataset(dataset);
    return request;
  }
  grpc::Status HisCreate(const v1::CreateJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    return his_->CreateJob(&context, request, job);
  }
  grpc::Status HisGet(const std::string& id, v1::Job* job) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_id(id);
    return his_->GetJob(&context, request, job);
  }

  std::string shared_;
  std::unique_ptr<v1::FineTuning::Stub> his_;
};

TEST_F(PrincipalsTest, OthersJobsDoNotExistForHim) {
  v1::Job roots, got;
  ASSERT_TRUE(Create(Request("steps=1"), &roots).ok());
  EXPECT_EQ(roots.owner(), "uid:0");
  const grpc::Status there = HisGet(roots.id(), &got);
  EXPECT_EQ(there.error_code(), grpc::StatusCode::NOT_FOUND);
  const std::string missing(roots.id().size(), 'x');
  std::string text = there.error_message();
  text.replace(text.find(roots.id()), roots.id().size(), missing);
  EXPECT_EQ(text, HisGet(missing, &got).error_message());
  grpc::ClientContext list, cancel, log, watch, download;
  v1::ListJobsRequest all;
  all.set_all(true);
  v1::ListJobsResponse listed;
  ASSERT_TRUE(his_->ListJobs(&list, all, &listed).ok());
  EXPECT_EQ(listed.jobs_size(), 0);
  v1::CancelJobRequest stop;
  stop.set_id(roots.id());
  EXPECT_EQ(his_->CancelJob(&cancel, stop, &got).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::GetJobLogsRequest logs;
  logs.set_id(roots.id());
  EXPECT_EQ(his_->GetJobLogs(&log, logs)->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  v1::WatchJobRequest follow;
  follow.set_id(roots.id());
  EXPECT_EQ(his_->WatchJob(&watch, follow)->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  v1::DownloadJobRequest output;
  output.set_id(roots.id());
  EXPECT_EQ(his_->DownloadJob(&download, output)->Finish().error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Watch(roots.id()).back().state(), v1::Job::STATE_SUCCEEDED);
}

// How much is promised he may know, to whom he may not.
TEST_F(PrincipalsTest, ReservationsOfOthersHaveNoNameForHim) {
  v1::Job roots;
  ASSERT_TRUE(Create(Request("steps=100000 step_ms=50"), &roots).ok());
  while (Get(roots.id()).state() != v1::Job::STATE_RUNNING) absl::SleepFor(absl::Milliseconds(20));
  grpc::ClientContext his, ours, cancel;
  v1::ServerInfo seen, known;
  ASSERT_TRUE(his_->GetServerInfo(&his, {}, &seen).ok());
  ASSERT_TRUE(stub_->GetServerInfo(&ours, {}, &known).ok());
  ASSERT_EQ(known.devices(0).reservations_size(), 1);
  EXPECT_EQ(known.devices(0).reservations(0).job(), roots.id());
  EXPECT_GT(known.devices(0).reservations(0).reserved_bytes(), 0);
  ASSERT_EQ(seen.devices(0).reservations_size(), 1);
  EXPECT_EQ(seen.devices(0).reservations(0).job(), "");
  EXPECT_EQ(seen.devices(0).reservations(0).reserved_bytes(),
            known.devices(0).reservations(0).reserved_bytes());
  v1::CancelJobRequest stop;
  stop.set_id(roots.id());
  ASSERT_TRUE(stub_->CancelJob(&cancel, stop, &roots).ok());
  EXPECT_EQ(Watch(roots.id()).back().state(), v1::Job::STATE_CANCELLED);
}

TEST_F(PrincipalsTest, HisOwnJobIsHisAndRoots) {
  v1::Job job, got;
  ASSERT_TRUE(HisCreate(Job(shared_ + "/model", shared_ + "/train.jsonl"), &job).ok());
  EXPECT_EQ(job.owner(), absl::StrCat("uid:", kStranger));
  EXPECT_TRUE(HisGet(job.id(), &got).ok());
  EXPECT_EQ(Watch(job.id()).back().state(), v1::Job::STATE_SUCCEEDED)
      << Get(job.id()).DebugString();
}

// What of root's he could have read through the daemon before it asked who asks.
TEST_F(PrincipalsTest, FilesThatHeMayNotReadAreNotReadForHim) {
  const std::string model = shared_ + "/model";
  v1::Job job;
  for (const bool validate : {true, false}) {
    v1::CreateJobRequest secret = Job(model, shared_ + "/secret.jsonl");
    secret.set_validate_only(validate);
    EXPECT_THAT(HisCreate(secret, &job).error_message(), HasSubstr("Permission denied"));
    v1::CreateJobRequest outside = Job(dir_ + "/model", dir_ + "/train.jsonl");
    outside.set_validate_only(validate);
    const grpc::Status refused = HisCreate(outside, &job);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(), HasSubstr("is not below the folders"));
  }
  grpc::ClientContext preview, plan;
  v1::PreviewDatasetRequest rows;
  rows.mutable_spec()->set_model(model);
  rows.mutable_spec()->set_dataset(shared_ + "/secret.jsonl");
  v1::PreviewDatasetResponse shown;
  EXPECT_THAT(his_->PreviewDataset(&preview, rows, &shown).error_message(),
              HasSubstr("Permission denied"));
  v1::PlanJobRequest plans;
  *plans.mutable_spec() = Job(dir_ + "/model", shared_ + "/train.jsonl").spec();
  v1::PlanJobResponse planned;
  EXPECT_THAT(his_->PlanJob(&plan, plans, &planned).error_message(),
              HasSubstr("is not below the folders"));
}

// Each user's request ids are his own.
TEST_F(PrincipalsTest, ARequestIdTellsNothingOfAnothersJob) {
  v1::CreateJobRequest request = Job(shared_ + "/model", shared_ + "/train.jsonl");
  request.set_request_id(RandomUuid());
  v1::Job roots, his;
  ASSERT_TRUE(Create(request, &roots).ok());
  ASSERT_TRUE(HisCreate(request, &his).ok());
  EXPECT_NE(his.id(), roots.id());
  v1::Job again;
  ASSERT_TRUE(HisCreate(request, &again).ok());
  EXPECT_EQ(again.id(), his.id());
  Watch(roots.id());
  Watch(his.id());
}

}  // namespace
}  // namespace snug::server
