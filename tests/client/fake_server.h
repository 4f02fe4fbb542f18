// A FineTuning service on a unix socket of its own folder that answers as a test tells it to.
#ifndef TESTS_CLIENT_FAKE_SERVER_H_
#define TESTS_CLIENT_FAKE_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/run.h"
#include "snug/v1/service.grpc.pb.h"

namespace snug::client {

// A folder that goes with the test.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const;  // The file's path.

 private:
  std::string folder_;
};

std::string ReadFile(const std::string& path);

// What a command wrote, and its exit code.
struct Ran {
  int code;
  std::string out;
  std::string err;
};
Ran RunSnug(std::vector<std::string> arguments);

class FakeServer final : public v1::FineTuning::Service {
 public:
  using Context = grpc::ServerContext;
  using Status = grpc::Status;
  template <class Request, class Reply>
  using Unary = std::function<Status(const Request&, Reply*)>;
  template <class Request, class Part>
  using Stream = std::function<Status(const Request&, grpc::ServerWriter<Part>*)>;

  // What is not set is UNIMPLEMENTED.
  Unary<v1::CreateJobRequest, v1::Job> create;
  Unary<v1::PlanJobRequest, v1::PlanJobResponse> plan;
  Unary<v1::PreviewDatasetRequest, v1::PreviewDatasetResponse> preview;
  Unary<v1::GetJobRequest, v1::Job> get;
  Unary<v1::ListJobsRequest, v1::ListJobsResponse> list;
  Unary<v1::CancelJobRequest, v1::Job> cancel;
  Unary<v1::PauseJobRequest, v1::Job> pause;
  Unary<v1::ResumeJobRequest, v1::Job> resume;
  Unary<v1::SqueezeJobRequest, v1::Job> squeeze;
  Unary<v1::RelaxJobRequest, v1::Job> relax;
  Unary<v1::UpdateJobRequest, v1::Job> update;
  Unary<v1::RerunJobRequest, v1::Job> rerun;
  Unary<v1::ExtendJobRequest, v1::Job> extend;
  Unary<v1::DeleteJobRequest, v1::Job> remove;
  Unary<v1::DrainDeviceRequest, v1::Device> drain;
  Unary<v1::UndrainDeviceRequest, v1::Device> undrain;
  Unary<v1::ListCheckpointsRequest, v1::ListCheckpointsResponse> checkpoints;
  Unary<v1::ListArtifactsRequest, v1::ListArtifactsResponse> artifacts;
  Unary<v1::ListFilesRequest, v1::ListFilesResponse> files;
  Unary<v1::ListTokensRequest, v1::ListTokensResponse> tokens;
  Unary<v1::CheckStoreRequest, v1::CheckStoreResponse> check;
  Unary<v1::GetServerInfoRequest, v1::ServerInfo> info;
  Stream<v1::WatchJobRequest, v1::Job> watch;
  Stream<v1::GetJobLogsRequest, v1::LogChunk> logs;
  Stream<v1::DownloadJobRequest, v1::FileChunk> download;
  Stream<v1::BackupStoreRequest, v1::FileChunk> backup;
  Stream<v1::SampleRequest, v1::SampleChunk> sample;

  FakeServer();
  ~FakeServer();
  void Stop();   // As a daemon that is gone: every stream breaks, the socket refuses.
  void Start();  // Again, on the same socket.

  // Runs `snug --server unix:SOCKET arguments...`.
  Ran Run(std::vector<std::string> arguments) const;
  const TempFolder& folder() const { return folder_; }
  std::string server() const { return "unix:" + folder_.path("s"); }

 private:
  Status CreateJob(Context*, const v1::CreateJobRequest*, v1::Job*) override;
  Status PlanJob(Context*, const v1::PlanJobRequest*, v1::PlanJobResponse*) override;
  Status PreviewDataset(Context*, const v1::PreviewDatasetRequest*,
                        v1::PreviewDatasetResponse*) override;
  Status GetJob(Context*, const v1::GetJobRequest*, v1::Job*) override;
  Status ListJobs(Context*, const v1::ListJobsRequest*, v1::ListJobsResponse*) override;
  Status CancelJob(Context*, const v1::CancelJobRequest*, v1::Job*) override;
  Status PauseJob(Context*, const v1::PauseJobRequest*, v1::Job*) override;
  Status ResumeJob(Context*, const v1::ResumeJobRequest*, v1::Job*) override;
  Status SqueezeJob(Context*, const v1::SqueezeJobRequest*, v1::Job*) override;
  Status RelaxJob(Context*, const v1::RelaxJobRequest*, v1::Job*) override;
  Status UpdateJob(Context*, const v1::UpdateJobRequest*, v1::Job*) override;
  Status RerunJob(Context*, const v1::RerunJobRequest*, v1::Job*) override;
  Status ExtendJob(Context*, const v1::ExtendJobRequest*, v1::Job*) override;
  Status DeleteJob(Context*, const v1::DeleteJobRequest*, v1::Job*) override;
  Status DrainDevice(Context*, const v1::DrainDeviceRequest*, v1::Device*) override;
  Status UndrainDevice(Context*, const v1::UndrainDeviceRequest*, v1::Device*) override;
  Status ListCheckpoints(Context*, const v1::ListCheckpointsRequest*,
                         v1::ListCheckpointsResponse*) override;
  Status ListArtifacts(Context*, const v1::ListArtifactsRequest*,
                       v1::ListArtifactsResponse*) override;
  Status ListFiles(Context*, const v1::ListFilesRequest*, v1::ListFilesResponse*) override;
  Status ListTokens(Context*, const v1::ListTokensRequest*, v1::ListTokensResponse*) override;
  Status CheckStore(Context*, const v1::CheckStoreRequest*, v1::CheckStoreResponse*) override;
  Status BackupStore(Context*, const v1::BackupStoreRequest*,
                     grpc::ServerWriter<v1::FileChunk>*) override;
  Status GetServerInfo(Context*, const v1::GetServerInfoRequest*, v1::ServerInfo*) override;
  Status WatchJob(Context*, const v1::WatchJobRequest*, grpc::ServerWriter<v1::Job>*) override;
  Status GetJobLogs(Context*, const v1::GetJobLogsRequest*,
                    grpc::ServerWriter<v1::LogChunk>*) override;
  Status DownloadJob(Context*, const v1::DownloadJobRequest*,
                     grpc::ServerWriter<v1::FileChunk>*) override;
  Status Sample(Context*, const v1::SampleRequest*, grpc::ServerWriter<v1::SampleChunk>*) override;

  TempFolder folder_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace snug::client

#endif  // TESTS_CLIENT_FAKE_SERVER_H_
