// The API through a real channel to a daemon in this process, whose worker is the fake one.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/daemon.h"
#include "server/job/random_id.h"
#include "tests/server/api/service_fixture.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Only a dataset and a model are needed; what is wrong with either is said by its field.
TEST_F(ServiceTest, PreviewsADataset) {
  v1::PreviewDatasetRequest request;
  request.mutable_spec()->set_dataset(dir_ + "/text.jsonl");
  request.set_rows(101);
  v1::PreviewDatasetResponse reply;
  const auto call = [&] {
    grpc::ClientContext context;
    return stub_->PreviewDataset(&context, request, &reply);
  };
  EXPECT_THAT(call().error_message(), HasSubstr("101 is outside 0 to 100"));
  request.set_rows(1);
  EXPECT_THAT(call().error_message(), HasSubstr("is missing: a Hugging Face model directory"));
  request.mutable_spec()->set_model(dir_ + "/model");
  EXPECT_THAT(call().error_message(), HasSubstr("cannot open " + dir_ + "/text.jsonl"));
  WriteText(dir_ + "/text.jsonl", "{\"chosen\": \"a\", \"rejected\": \"b\"}\n");
  EXPECT_THAT(call().error_message(), HasSubstr("text.jsonl:1: this is preference data"));
}

TEST_F(ServiceTest, WatchBeginsWithTheJobAsItIsAndEndsWithItsEnd) {
  v1::Job job;
  ASSERT_TRUE(Create(Request("steps=5"), &job).ok());
  EXPECT_EQ(job.state(), v1::Job::STATE_PREPARING);
  EXPECT_EQ(job.name(), "tenants/default/jobs/" + job.id());
  const std::vector<v1::Job> seen = Watch(job.id());
  EXPECT_EQ(seen.back().state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(seen.back().progress().global_step(), 5);
  EXPECT_EQ(Watch(job.id()).size(), 1u);
}

TEST_F(ServiceTest, SameRequestIdMakesOneJob) {
  v1::CreateJobRequest request = Request("steps=1");
  request.set_request_id(RandomUuid());
  v1::Job first, second;
  ASSERT_TRUE(Create(request, &first).ok());
  ASSERT_TRUE(Create(request, &second).ok());
  EXPECT_EQ(first.id(), second.id());
  request.mutable_spec()->set_priority(3);
  const grpc::Status reused = Create(request, &second);
  EXPECT_EQ(reused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ReasonOf(reused), "REQUEST_ID_REUSED");
  Watch(first.id());
}

// The client lost the answer and asks again when the files have gone.
TEST_F(ServiceTest, RepeatedRequestIsAnsweredWithoutItsFiles) {
  v1::CreateJobRequest request = Request("steps=1");
  WriteTinyDataset(dir_ + "/passing.jsonl", 4, 10);
  request.mutable_spec()->set_dataset(dir_ + "/passing.jsonl");
  request.set_request_id(RandomUuid());
  v1::Job first, second;
  ASSERT_TRUE(Create(request, &first).ok());
  Watch(first.id());
  fs::remove(dir_ + "/passing.jsonl");
  ASSERT_TRUE(Create(request, &second).ok());
  EXPECT_EQ(first.id(), second.id());
}

TEST_F(ServiceTest, AllViolationsOfASpecAtOnce) {
  v1::CreateJobRequest request = Request("");
  request.mutable_spec()->mutable_training()->set_max_steps(-1);
  request.mutable_spec()->mutable_lora()->set_r(-2);
  v1::Job job;
  const grpc::Status refused = Create(request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = DetailOf<google::rpc::BadRequest>(refused);
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(0).field(), "spec.lora.r");
  EXPECT_EQ(bad.field_violations(1).field(), "spec.training.max_steps");
}

TEST_F(ServiceTest, WrongFilesAreNamedTogether) {
  v1::CreateJobRequest request = Request("");
  fs::create_directories(dir_ + "/empty");
  request.mutable_spec()->set_model(dir_ + "/empty");
  request.mutable_spec()->set_dataset(dir_ + "/no.jsonl");
  v1::Job job;
  const auto bad = DetailOf<google::rpc::BadRequest>(Validate(request, &job));
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(0).field(), "spec.dataset");
  EXPECT_THAT(bad.field_violations(1).description(), HasSubstr("config.json"));
}

// Names that exclude nothing, too long for an adapter_config.json once they are spelled in JSON;
// and a tokenizer that cannot go along.
TEST_F(ServiceTest, WhatOnlyTheExportWouldMeetIsRefusedAtOnce) {
  v1::CreateJobRequest request = Request("small");
  for (int i = 0; i < 200; ++i)
    request.mutable_spec()->mutable_lora()->add_exclude_modules(std::string(1000, '\x01'));
  const std::string link = dir_ + "/model/tokenizer.model";
  fs::create_symlink(dir_ + "/nothing", link);
  v1::Job job;
  const auto bad = DetailOf<google::rpc::BadRequest>(Validate(request, &job));
  fs::remove(link);
  ASSERT_EQ(bad.field_violations_size(), 2);
  EXPECT_EQ(bad.field_violations(0).field(), "spec.model");
  EXPECT_THAT(bad.field_violations(0).description(), HasSubstr("cannot open " + link));
  EXPECT_EQ(bad.field_violations(1).field(), "spec.lora");
  EXPECT_THAT(bad.field_violations(1).description(),
              HasSubstr("the adapter_config.json of the job's result"));
}

TEST_F(ServiceTest, UnknownTargetModuleNamesThoseThatThereAre) {
  v1::CreateJobRequest request = Request("");
  request.mutable_spec()->mutable_lora()->add_target_modules("qqq_proj");
  v1::Job job;
  const grpc::Status refused = Validate(request, &job);
  EXPECT_THAT(refused.error_message(), HasSubstr("q_proj"));
  EXPECT_EQ(ReasonOf(refused), "BAD_TARGET_MODULES");
}

TEST_F(ServiceTest, JobIdsAreChosenOrGiven) {
  v1::CreateJobRequest request = Request("steps=1");
  request.set_job_id("Not-Valid");
  v1::Job job;
  EXPECT_EQ(Create(request, &job).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_job_id("my-own-id");
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_EQ(job.id(), "my-own-id");
  EXPECT_EQ(ReasonOf(Create(request, &job)), "JOB_EXISTS");
  EXPECT_EQ(Get("my-own").id(), "my-own-id");
  Watch("my-own-id");
}

TEST_F(ServiceTest, ValidateOnlyMakesNoJob) {
  v1::CreateJobRequest request = Request("draft");
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_EQ(job.id(), "");
  EXPECT_EQ(job.spec().lora().r(), 16);
}

TEST_F(ServiceTest, UnknownJobIsNotFoundWithItsName) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_id("nobody");
  v1::Job job;
  const grpc::Status status = stub_->GetJob(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(DetailOf<google::rpc::ResourceInfo>(status).resource_name(), "jobs/nobody");
}

// A budget below the smallest plan is refused when the job is submitted, with the bytes it would
// need.
TEST_F(ServiceTest, JobThatCannotFitIsRefusedWithItsBytes) {
  v1::CreateJobRequest request = Request("");
  request.mutable_spec()->mutable_memory()->set_budget("1MiB");
  v1::Job job;
  const grpc::Status refused = Validate(request, &job);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  const auto info = DetailOf<google::rpc::ErrorInfo>(refused);
  EXPECT_EQ(info.reason(), "PLAN_INFEASIBLE");
  EXPECT_GT(std::stoll(info.metadata().at("smallest_budget_bytes")), 1 << 20);
}

TEST_F(ServiceTest, PlansFastestFirstWithTheChoice) {
  grpc::ClientContext context;
  v1::PlanJobRequest request;
  *request.mutable_spec() = Request("").spec();
  request.set_with_sites(true);
  v1::PlanJobResponse response;
  ASSERT_TRUE(stub_->PlanJob(&context, request, &response).ok());
  ASSERT_GE(response.plans_size(), 3);  // keep, two "recompute k of 2", and mixes.
  EXPECT_EQ(response.plans(0).name(), "keep");
  EXPECT_EQ(response.chosen(), 0);
  EXPECT_EQ(response.device(), "cpu:0");
  EXPECT_EQ(response.device_capacity_bytes(), 1 << 30);
  EXPECT_GT(response.sites_size(), 0);
}

// A machine that the daemon does not have: the plans are those of its memory and its speed.
TEST_F(ServiceTest, PlansForAMachineThatIsDescribed) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = Request("").spec();
  const auto plan = [&](v1::PlanJobResponse* response) {
    grpc::ClientContext context;
    return stub_->PlanJob(&context, request, response);
  };
  v1::PlanJobResponse here, there;
  ASSERT_TRUE(plan(&here).ok());
  request.mutable_machine()->set_device_kind("h100");
  request.set_with_max(true);
  ASSERT_TRUE(plan(&there).ok());
  EXPECT_EQ(there.device(), "gpu:h100");
  EXPECT_EQ(there.rates(), "kind");
  EXPECT_GT(there.device_capacity_bytes(), int64_t{70} << 30);
  EXPECT_GT(there.plans(0).memory().context_bytes(), int64_t{500} << 20);
  // So small a step takes a GPU as long as it takes to start its ops.
  EXPECT_EQ(here.rates(), "nominal");
  EXPECT_GT(there.plans(0).step_seconds(), 1e-4);
  EXPECT_EQ(there.devices_size(), 1);
  EXPECT_FALSE(here.has_max());
  EXPECT_GT(there.max().per_device_train_batch_size(), 0);
  EXPECT_GT(there.max().gradient_accumulation_steps(), 0);
  EXPECT_EQ(there.max().fidelity(), v1::FIDELITY_EXACT);
  ASSERT_EQ(there.max_by_fidelity_size(), 3);
  EXPECT_EQ(there.max_by_fidelity(2).fidelity(), v1::FIDELITY_APPROXIMATE);
  // A byte less than its smallest plan needs, and nothing fits.
  int64_t smallest = INT64_MAX;
  for (const v1::Plan& each : there.plans()) smallest = std::min(smallest, each.peak_bytes());
  request.mutable_machine()->set_device_memory_bytes(smallest);
  ASSERT_TRUE(plan(&there).ok());
  EXPECT_EQ(there.plans(there.chosen()).peak_bytes(), smallest);
  EXPECT_GE(there.max().max_seq_length(), there.plans(0).key().longest_document());
  request.mutable_machine()->set_device_memory_bytes(smallest - 1);
  ASSERT_TRUE(plan(&there).ok());
  EXPECT_EQ(there.chosen(), -1);
  EXPECT_THAT(there.refusal(), testing::HasSubstr("gpu:h100 has"));
  request.mutable_machine()->set_device_kind("abacus");
  EXPECT_EQ(ReasonOf(plan(&there)), "BAD_FIELD");
}

// Its host's memory, too: a byte less than what is offloaded, and nothing fits.
TEST_F(ServiceTest, PlansForAHostThatIsDescribed) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = Request("").spec();
  (*request.mutable_spec()->mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_OFFLOAD;
  request.mutable_machine()->set_device_kind("h100");
  const auto plan = [&](int64_t host_bytes) {
    request.mutable_machine()->set_host_memory_bytes(host_bytes);
    grpc::ClientContext context;
    v1::PlanJobResponse response;
    EXPECT_TRUE(stub_->PlanJob(&context, request, &response).ok());
    return response;
  };
  const v1::PlanJobResponse any = plan(0);
  ASSERT_GE(any.chosen(), 0);
  const int64_t offloaded = any.plans(any.chosen()).host_bytes();
  ASSERT_GT(offloaded, 0);
  EXPECT_EQ(plan(offloaded).chosen(), any.chosen());
  const v1::PlanJobResponse refused = plan(offloaded - 1);
  EXPECT_EQ(refused.chosen(), -1);
  EXPECT_THAT(refused.refusal(), testing::HasSubstr("of the host's memory"));
}

TEST_F(ServiceTest, APlanShowsItsTapeWhenItIsAsked) {
  v1::PlanJobRequest request;
  *request.mutable_spec() = Request("").spec();
  v1::PlanJobResponse response;
  grpc::ClientContext first, second;
  ASSERT_TRUE(stub_->PlanJob(&first, request, &response).ok());
  EXPECT_EQ(response.tape(), "");
  EXPECT_EQ(response.timeline_size(), 0);
  request.set_with_tape(true);
  request.set_with_timeline(true);
  ASSERT_TRUE(stub_->PlanJob(&second, request, &response).ok());
  EXPECT_THAT(response.tape(), testing::StartsWith("arena of "));
  EXPECT_GT(response.timeline_size(), 10);
}

TEST_F(ServiceTest, ListGoesThroughAllPages) {
  std::set<std::string> made;
  for (int i = 0; i < 3; ++i) {
    v1::Job job;
    ASSERT_TRUE(Create(Request("steps=1"), &job).ok());
    made.insert(job.id());
  }
  std::set<std::string> listed;
  v1::ListJobsRequest request;
  request.set_all(true);
  request.set_page_size(2);
  do {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    ASSERT_TRUE(stub_->ListJobs(&context, request, &response).ok());
    EXPECT_LE(response.jobs_size(), 2);
    for (const v1::Job& job : response.jobs()) EXPECT_TRUE(listed.insert(job.id()).second);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  for (const std::string& id : made) EXPECT_TRUE(listed.contains(id));
  for (const std::string& id : made) Watch(id);
}

// F-63
TEST_F(ServiceTest, PageTokenOfAnotherListIsRefused) {
  v1::ListJobsRequest request;
  request.set_page_token("bm90LW91cnM");
  grpc::ClientContext context;
  v1::ListJobsResponse response;
  EXPECT_EQ(ReasonOf(stub_->ListJobs(&context, request, &response)), "BAD_PAGE_TOKEN");
  grpc::ClientContext again;
  request.set_page_token("");
  request.set_page_size(-1);
  EXPECT_EQ(stub_->ListJobs(&again, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// F-55: gRPC itself would answer UNIMPLEMENTED.
TEST_F(ServiceTest, BytesThatAreNoRequestAreInvalidOnEveryMethod) {
  for (const char* method :
       {"CreateJob", "PlanJob",         "GetJob",        "ListJobs",   "CancelJob",
        "WatchJob",  "GetJobLogs",      "DownloadJob",   "UpdateJob",  "RerunJob",
        "ExtendJob", "DeleteJob",       "BackupStore",   "CheckStore", "PauseJob",
        "ResumeJob", "ListCheckpoints", "ListArtifacts", "SqueezeJob", "RelaxJob"}) {
    const grpc::Status status =
        CallRaw(absl::StrCat("/snug.v1.FineTuning/", method), "\x0a\xff\xff\xff\xff").first;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_EQ(ReasonOf(status), "UNDECODABLE_REQUEST") << method;
  }
}

TEST_F(ServiceTest, RequestBeyondTheLimitIsRefused) {
  v1::CreateJobRequest request = Request(std::string(300 << 10, 'x'));
  v1::Job job;
  EXPECT_EQ(ReasonOf(Create(request, &job)), "REQUEST_TOO_LARGE");
}

TEST_F(ServiceTest, DownloadGivesEveryFileWhole) {
  v1::Job job;
  ASSERT_TRUE(Create(Request("steps=1"), &job).ok());
  Watch(job.id());
  grpc::ClientContext context;
  v1::DownloadJobRequest request;
  request.set_id(job.id());
  auto reader = stub_->DownloadJob(&context, request);
  std::map<std::string, std::string> files;
  std::string current;
  for (v1::FileChunk chunk; reader->Read(&chunk);) {
    if (!chunk.path().empty()) current = chunk.path();
    files[current] += chunk.content();
  }
  ASSERT_TRUE(reader->Finish().ok());
  const std::string output = dir_ + "/state/jobs/" + job.id() + "/attempts/1/output/";
  EXPECT_EQ(files.size(), 3u);
  for (const auto& [path, content] : files) EXPECT_EQ(content, ReadText(output + path)) << path;
}

TEST_F(ServiceTest, OutputOfAJobThatHasNotEndedIsRefused) {
  v1::Job job;
  ASSERT_TRUE(Create(Request("steps=1000 step_ms=50"), &job).ok());
  grpc::ClientContext context, cancel;
  v1::DownloadJobRequest request;
  request.set_id(job.id());
  v1::FileChunk chunk;
  auto reader = stub_->DownloadJob(&context, request);
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(ReasonOf(reader->Finish()), "WRONG_STATE");
  v1::CancelJobRequest end;
  end.set_id(job.id());
  EXPECT_TRUE(stub_->CancelJob(&cancel, end, &job).ok());
  EXPECT_EQ(Watch(job.id()).back().state(), v1::Job::STATE_CANCELLED);
}

TEST_F(ServiceTest, LogsOfAJobFollowItToItsEnd) {
  v1::Job job;
  ASSERT_TRUE(Create(Request("steps=5"), &job).ok());
  grpc::ClientContext context;
  v1::GetJobLogsRequest request;
  request.set_id(job.id());
  request.set_follow(true);
  auto reader = stub_->GetJobLogs(&context, request);
  std::string log;
  for (v1::LogChunk chunk; reader->Read(&chunk);) log += chunk.text();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(log, "fake worker, from step 0\n");
}

// A full job's model is the base of the next job, by its id.
TEST_F(ServiceTest, FinishedJobIsAModel) {
  v1::CreateJobRequest request = Request("steps=1");
  request.mutable_spec()->set_method(v1::JobSpec::METHOD_FULL);
  v1::Job full, lora;
  ASSERT_TRUE(Create(request, &full).ok());
  EXPECT_EQ(Watch(full.id()).back().state(), v1::Job::STATE_SUCCEEDED);
  request = Request("steps=1");
  request.mutable_spec()->set_model(full.id());
  ASSERT_TRUE(Create(request, &lora).ok());
  EXPECT_EQ(Watch(lora.id()).back().state(), v1::Job::STATE_SUCCEEDED);
  request.mutable_spec()->set_model(lora.id());
  EXPECT_EQ(ReasonOf(Create(request, &full)), "BAD_MODEL");
}

TEST_F(ServiceTest, ServerSaysWhatItIs) {
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
  EXPECT_TRUE(IsUuid(info.instance_uuid()));
  EXPECT_EQ(info.boot_epoch(), 1);
  EXPECT_GT(info.metrics_port(), 0);
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).capacity_bytes(), 1 << 30);
  EXPECT_EQ(info.devices(0).context_bytes(), 8 << 20);
}

TEST_F(ServiceTest, SocketIsForOwnerAndGroup) {
  struct stat status {};
  ASSERT_EQ(stat((dir_ + "/s").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
  ASSERT_EQ(stat((dir_ + "/state").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

// The standard health service, asked with its own wire form: field 1 of the request is the service,
// field 1 of the reply 1 = SERVING.
TEST_F(ServiceTest, HealthIsServing) {
  for (const std::string& service : {std::string(), std::string("snug.v1.FineTuning")}) {
    std::string request;
    if (!service.empty())
      request = absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
    const auto [status, answer] = CallRaw("/grpc.health.v1.Health/Check", request);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(answer, "\x08\x01");
  }
}

}  // namespace
}  // namespace snug::server
