// A daemon in this process, whose worker is the fake one, and a real channel to it.
#ifndef TESTS_SERVER_API_SERVICE_FIXTURE_H_
#define TESTS_SERVER_API_SERVICE_FIXTURE_H_

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/daemon.h"
#include "server/job/random_id.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {

namespace fs = std::filesystem;

class ServiceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = folder_.emplace("api").path();
    WriteTinyModel(dir_ + "/model");
    WriteTinyDataset(dir_ + "/train.jsonl", 20, 30);
    const std::string bin = std::getenv("SNUG_BIN_DIR");
    v1::DaemonConfig config;
    config.set_state_dir(dir_ + "/state");
    config.set_socket(dir_ + "/s");
    config.set_metrics_port(0);
    config.set_worker(std::getenv("SNUG_FAKE_WORKER"));
    config.set_shim(bin + "/snug-shim");
    config.set_inspect(bin + "/snug-inspect");
    config.add_roots(dir_ + "/shared");
    config.set_python(std::getenv("SNUG_PYTHON"));
    config.mutable_prepare()->set_memory("4GiB");
    config.mutable_prepare()->set_timeout_seconds(60);
    v1::DeviceConfig& device = *config.add_devices();
    device.set_name("cpu:0");
    device.set_capacity("1GiB");
    daemon_ = Daemon::Create(config).value().release();
    channel_ = grpc::CreateChannel("unix:" + dir_ + "/s", grpc::InsecureChannelCredentials());
    stub_ = v1::FineTuning::NewStub(channel_).release();
  }
  static void TearDownTestSuite() {
    delete stub_;
    channel_.reset();
    delete daemon_;
    folder_.reset();
  }

  static v1::CreateJobRequest Request(const std::string& script) {
    v1::CreateJobRequest request;
    request.mutable_spec()->set_display_name(script);
    request.mutable_spec()->set_model(dir_ + "/model");
    request.mutable_spec()->set_dataset(dir_ + "/train.jsonl");
    request.mutable_spec()->set_method(v1::JobSpec::METHOD_LORA);
    return request;
  }
  static grpc::Status Create(const v1::CreateJobRequest& request, v1::Job* job) {
    grpc::ClientContext context;
    return stub_->CreateJob(&context, request, job);
  }
  // What the files say of it; no job is made.
  static grpc::Status Validate(v1::CreateJobRequest request, v1::Job* job) {
    request.set_validate_only(true);
    return Create(request, job);
  }
  static v1::Job Get(const std::string& id) {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_id(id);
    v1::Job job;
    EXPECT_TRUE(stub_->GetJob(&context, request, &job).ok());
    return job;
  }
  // States as a watcher sees them, until the job has ended.
  static std::vector<v1::Job> Watch(const std::string& id) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_id(id);
    auto reader = stub_->WatchJob(&context, request);
    std::vector<v1::Job> seen;
    for (v1::Job job; reader->Read(&job);) seen.push_back(job);
    EXPECT_TRUE(reader->Finish().ok());
    return seen;
  }
  // Bytes to a method and back, whatever they mean.
  static std::pair<grpc::Status, std::string> CallRaw(const std::string& method,
                                                      const std::string& request) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    auto call = stub.PrepareUnaryCall(&context, method, bytes, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    grpc::Slice answer;
    if (status.ok() && !reply.DumpToSingleSlice(&answer).ok()) ADD_FAILURE() << method;
    return {status, std::string(answer.begin(), answer.end())};
  }
  template <typename Detail>
  static Detail DetailOf(const grpc::Status& status) {
    google::rpc::Status whole;
    EXPECT_TRUE(whole.ParseFromString(status.error_details()));
    Detail detail;
    for (const google::protobuf::Any& any : whole.details())
      if (any.UnpackTo(&detail)) return detail;
    ADD_FAILURE() << "no " << Detail::descriptor()->full_name();
    return detail;
  }
  static std::string ReasonOf(const grpc::Status& status) {
    return DetailOf<google::rpc::ErrorInfo>(status).reason();
  }

  static inline std::optional<TestFolder> folder_;
  static inline std::string dir_;
  static inline Daemon* daemon_ = nullptr;
  static inline std::shared_ptr<grpc::Channel> channel_;
  static inline v1::FineTuning::Stub* stub_ = nullptr;
};

}  // namespace snug::server

#endif  // TESTS_SERVER_API_SERVICE_FIXTURE_H_
