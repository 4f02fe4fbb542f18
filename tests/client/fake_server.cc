#include "tests/client/fake_server.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

template <class Answer, class Request, class Reply>
grpc::Status Ask(const Answer& answer, const Request& request, Reply* reply) {
  if (!answer) return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "the test did not set this");
  return answer(request, reply);
}

}  // namespace

TempFolder::TempFolder() {
  char name[] = "/tmp/snug-test-XXXXXX";
  folder_ = mkdtemp(name);
}

TempFolder::~TempFolder() { std::filesystem::remove_all(folder_); }

std::string TempFolder::Write(const std::string& name, const std::string& text) const {
  std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
  std::ofstream(path(name)) << text;
  return path(name);
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Ran RunSnug(std::vector<std::string> arguments) {
  std::ostringstream out, err;
  Terminal terminal{.out = out, .err = err};
  const int code = snug::client::Run(std::move(arguments), terminal);
  return {code, out.str(), err.str()};
}

FakeServer::FakeServer() { Start(); }
FakeServer::~FakeServer() { Stop(); }

void FakeServer::Start() {
  std::filesystem::remove(folder_.path("s"));
  grpc::ServerBuilder builder;
  builder.AddListeningPort(server(), grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
}

void FakeServer::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());  // Cancels what is under way.
  server_->Wait();
  server_.reset();
}

Ran FakeServer::Run(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {"--server", server()});
  return RunSnug(std::move(arguments));
}

grpc::Status FakeServer::CreateJob(Context*, const v1::CreateJobRequest* request, v1::Job* reply) {
  return Ask(create, *request, reply);
}
grpc::Status FakeServer::PlanJob(Context*, const v1::PlanJobRequest* request,
                                 v1::PlanJobResponse* reply) {
  return Ask(plan, *request, reply);
}
grpc::Status FakeServer::PreviewDataset(Context*, const v1::PreviewDatasetRequest* request,
                                        v1::PreviewDatasetResponse* reply) {
  return Ask(preview, *request, reply);
}
grpc::Status FakeServer::GetJob(Context*, const v1::GetJobRequest* request, v1::Job* reply) {
  return Ask(get, *request, reply);
}
grpc::Status FakeServer::ListJobs(Context*, const v1::ListJobsRequest* request,
                                  v1::ListJobsResponse* reply) {
  return Ask(list, *request, reply);
}
grpc::Status FakeServer::CancelJob(Context*, const v1::CancelJobRequest* request, v1::Job* reply) {
  return Ask(cancel, *request, reply);
}
grpc::Status FakeServer::PauseJob(Context*, const v1::PauseJobRequest* request, v1::Job* reply) {
  return Ask(pause, *request, reply);
}
grpc::Status FakeServer::ResumeJob(Context*, const v1::ResumeJobRequest* request, v1::Job* reply) {
  return Ask(resume, *request, reply);
}
grpc::Status FakeServer::SqueezeJob(Context*, const v1::SqueezeJobRequest* request,
                                    v1::Job* reply) {
  return Ask(squeeze, *request, reply);
}
grpc::Status FakeServer::RelaxJob(Context*, const v1::RelaxJobRequest* request, v1::Job* reply) {
  return Ask(relax, *request, reply);
}
grpc::Status FakeServer::UpdateJob(Context*, const v1::UpdateJobRequest* request, v1::Job* reply) {
  return Ask(update, *request, reply);
}
grpc::Status FakeServer::RerunJob(Context*, const v1::RerunJobRequest* request, v1::Job* reply) {
  return Ask(rerun, *request, reply);
}
grpc::Status FakeServer::ExtendJob(Context*, const v1::ExtendJobRequest* request, v1::Job* reply) {
  return Ask(extend, *request, reply);
}
grpc::Status FakeServer::DeleteJob(Context*, const v1::DeleteJobRequest* request, v1::Job* reply) {
  return Ask(remove, *request, reply);
}
grpc::Status FakeServer::DrainDevice(Context*, const v1::DrainDeviceRequest* request,
                                     v1::Device* reply) {
  return Ask(drain, *request, reply);
}
grpc::Status FakeServer::UndrainDevice(Context*, const v1::UndrainDeviceRequest* request,
                                       v1::Device* reply) {
  return Ask(undrain, *request, reply);
}
grpc::Status FakeServer::ListCheckpoints(Context*, const v1::ListCheckpointsRequest* request,
                                         v1::ListCheckpointsResponse* reply) {
  return Ask(checkpoints, *request, reply);
}
grpc::Status FakeServer::ListArtifacts(Context*, const v1::ListArtifactsRequest* request,
                                       v1::ListArtifactsResponse* reply) {
  return Ask(artifacts, *request, reply);
}
grpc::Status FakeServer::ListFiles(Context*, const v1::ListFilesRequest* request,
                                   v1::ListFilesResponse* reply) {
  return Ask(files, *request, reply);
}
grpc::Status FakeServer::ListTokens(Context*, const v1::ListTokensRequest* request,
                                    v1::ListTokensResponse* reply) {
  return Ask(tokens, *request, reply);
}
grpc::Status FakeServer::CheckStore(Context*, const v1::CheckStoreRequest* request,
                                    v1::CheckStoreResponse* reply) {
  return Ask(check, *request, reply);
}
grpc::Status FakeServer::BackupStore(Context*, const v1::BackupStoreRequest* request,
                                     grpc::ServerWriter<v1::FileChunk>* writer) {
  return Ask(backup, *request, writer);
}
grpc::Status FakeServer::GetServerInfo(Context*, const v1::GetServerInfoRequest* request,
                                       v1::ServerInfo* reply) {
  return Ask(info, *request, reply);
}
grpc::Status FakeServer::WatchJob(Context*, const v1::WatchJobRequest* request,
                                  grpc::ServerWriter<v1::Job>* writer) {
  return Ask(watch, *request, writer);
}
grpc::Status FakeServer::GetJobLogs(Context*, const v1::GetJobLogsRequest* request,
                                    grpc::ServerWriter<v1::LogChunk>* writer) {
  return Ask(logs, *request, writer);
}
grpc::Status FakeServer::DownloadJob(Context*, const v1::DownloadJobRequest* request,
                                     grpc::ServerWriter<v1::FileChunk>* writer) {
  return Ask(download, *request, writer);
}
grpc::Status FakeServer::Sample(Context*, const v1::SampleRequest* request,
                                grpc::ServerWriter<v1::SampleChunk>* writer) {
  return Ask(sample, *request, writer);
}

}  // namespace snug::client
