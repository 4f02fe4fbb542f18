// The calls of snug.v1.FineTuning, without a transport: a request and who makes it in, an answer
// out. gRPC (server/grpc/) and HTTP (server/http/) are doors that find out who calls, and hand
// calls over. Each call is allowed by one table (authorise.h), and one that may change something is
// a line of the audit log, whichever door it came through.
//
// A method parses, finds, acts, converts, and decides nothing itself. Reads of live jobs come from
// the index's memory; what touches files or the store goes to a pool; what changes something goes
// to the scheduler and is answered after its commit. Only the beginning of a stream about an ended
// job waits on the caller's thread, for one row of the store.
#ifndef SERVER_API_API_H_
#define SERVER_API_API_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/api/api_parts.h"
#include "server/api/artifacts.h"
#include "server/api/file_upload.h"
#include "server/api/message_source.h"
#include "server/api/page_token.h"
#include "server/api/stored_bytes.h"
#include "server/job/job_index.h"
#include "snug/v1/files.pb.h"
#include "snug/v1/metrics.pb.h"
#include "snug/v1/sample.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// A job file's worth of text is the largest; a door refuses more before it parses.
inline constexpr size_t kMaxRequestBytes = 256 << 10;
// Checks of models and datasets; more would wait for minutes.
inline constexpr size_t kMaxWaitingChecks = 100;

// Called once: from any thread, perhaps before the call has returned.
template <typename Response>
using Answer = std::function<void(absl::StatusOr<Response>)>;

class Api {
 public:
  explicit Api(ApiParts parts)
      : parts_(std::move(parts)),
        artifacts_(parts_.index, parts_.state_dir, page_tokens_),
        stored_(parts_.tenants, CountOnDisk(parts_.index, parts_.uploads, parts_.state_dir)) {}

  // A call with one answer.
  template <typename Request, typename Response>
  using Method = void (Api::*)(const Principal& who, const Request& request,
                               Answer<Response> answer);

  void CreateJob(const Principal&, const v1::CreateJobRequest&, Answer<v1::Job>);
  void PlanJob(const Principal&, const v1::PlanJobRequest&, Answer<v1::PlanJobResponse>);
  void PreviewDataset(const Principal&, const v1::PreviewDatasetRequest&,
                      Answer<v1::PreviewDatasetResponse>);
  void GetJob(const Principal&, const v1::GetJobRequest&, Answer<v1::Job>);
  void ListJobs(const Principal&, const v1::ListJobsRequest&, Answer<v1::ListJobsResponse>);
  void CancelJob(const Principal&, const v1::CancelJobRequest&, Answer<v1::Job>);
  void PauseJob(const Principal&, const v1::PauseJobRequest&, Answer<v1::Job>);
  void ResumeJob(const Principal&, const v1::ResumeJobRequest&, Answer<v1::Job>);
  void SqueezeJob(const Principal&, const v1::SqueezeJobRequest&, Answer<v1::Job>);
  void RelaxJob(const Principal&, const v1::RelaxJobRequest&, Answer<v1::Job>);
  void UpdateJob(const Principal&, const v1::UpdateJobRequest&, Answer<v1::Job>);
  void RerunJob(const Principal&, const v1::RerunJobRequest&, Answer<v1::Job>);
  void ExtendJob(const Principal&, const v1::ExtendJobRequest&, Answer<v1::Job>);
  void DeleteJob(const Principal&, const v1::DeleteJobRequest&, Answer<v1::Job>);
  void ListCheckpoints(const Principal&, const v1::ListCheckpointsRequest&,
                       Answer<v1::ListCheckpointsResponse>);
  void ListArtifacts(const Principal&, const v1::ListArtifactsRequest&,
                     Answer<v1::ListArtifactsResponse>);
  void GetMetricHistory(const Principal&, const v1::GetMetricHistoryRequest&,
                        Answer<v1::GetMetricHistoryResponse>);
  void GetServerInfo(const Principal&, const v1::GetServerInfoRequest&, Answer<v1::ServerInfo>);

  // Files that clients send.
  void GetUpload(const Principal&, const v1::GetUploadRequest&, Answer<v1::Upload>);
  void ListFiles(const Principal&, const v1::ListFilesRequest&, Answer<v1::ListFilesResponse>);
  void GetFile(const Principal&, const v1::GetFileRequest&, Answer<v1::File>);
  void DeleteFile(const Principal&, const v1::DeleteFileRequest&, Answer<v1::File>);

  // For operators.
  void CheckStore(const Principal&, const v1::CheckStoreRequest&, Answer<v1::CheckStoreResponse>);
  void CreateSession(const Principal&, const v1::CreateSessionRequest&,
                     Answer<v1::CreateSessionResponse>);
  void CreateToken(const Principal&, const v1::CreateTokenRequest&,
                   Answer<v1::CreateTokenResponse>);
  void ListTokens(const Principal&, const v1::ListTokensRequest&, Answer<v1::ListTokensResponse>);
  void RevokeToken(const Principal&, const v1::RevokeTokenRequest&, Answer<v1::Token>);
  void DrainDevice(const Principal&, const v1::DrainDeviceRequest&, Answer<v1::Device>);
  void UndrainDevice(const Principal&, const v1::UndrainDeviceRequest&, Answer<v1::Device>);

  // Streams, for the door to pull.
  absl::StatusOr<MessageSource<v1::LogChunk>> GetJobLogs(const Principal&,
                                                         const v1::GetJobLogsRequest&);
  absl::StatusOr<MessageSource<v1::FileChunk>> DownloadJob(const Principal&,
                                                           const v1::DownloadJobRequest&);
  absl::StatusOr<MessageSource<v1::SampleChunk>> Sample(const Principal&, const v1::SampleRequest&);
  absl::StatusOr<MessageSource<v1::FileChunk>> BackupStore(const Principal&,
                                                           const v1::BackupStoreRequest&);

  // The job as it is; `watcher` hears of each change from now on.
  absl::StatusOr<JobPtr> WatchJob(const Principal&, const v1::WatchJobRequest&,
                                  const std::shared_ptr<JobWatcher>& watcher);

  absl::StatusOr<std::unique_ptr<FileUpload>> UploadFile(const Principal&, const v1::UploadHeader&);

  // Whether he may read the metrics of all jobs.
  absl::Status MayScrape(const Principal& who) const;

 private:
  // A call that may be made: by whom, and with the whole id of the job that it names.
  template <typename Request>
  struct Allowed {
    Principal who;
    Request request;
  };
  template <typename Request>
  absl::StatusOr<Allowed<Request>> Allow(const Principal& who, Request request) const;
  template <typename Request, typename Response, typename Act>
  void Serve(const Principal& who, const Request& request, Answer<Response> answer, const Act& act);
  template <typename Request, typename Response, typename Act>
  void OnPool(const Principal& who, const Request& request, Answer<Response> answer,
              const Act& act);
  template <typename Request, typename Response, typename Act>
  void OnChecks(const Principal& who, const Request& request, Answer<Response> answer,
                const Act& act, const CheckKind& kind = {});
  template <typename Request, typename Response>
  void Ask(const Principal& who, const Request& request, Answer<Response> answer,
           absl::StatusOr<Response> (Advisor::*ask)(const Request&, const Principal&));
  // A call that is the scheduler's to answer.
  template <typename Request>
  void Change(const Principal& who, const Request& request, Answer<v1::Job> answer,
              void (Scheduler::*change)(Request, Scheduler::Reply));

  void Create(Allowed<v1::CreateJobRequest> call, CreateOrder order, const Answer<v1::Job>& answer);
  absl::Status TakeSpec(const Principal& who, v1::JobSpec& spec, CreateOrder& order);
  void Validate(const Allowed<v1::CreateJobRequest>& call, const Answer<v1::Job>& answer);
  void Rerun(const Allowed<v1::RerunJobRequest>& call, const Answer<v1::Job>& answer);
  void Extend(const Allowed<v1::ExtendJobRequest>& call, const Answer<v1::Job>& answer);

  const ApiParts parts_;
  const PageTokens page_tokens_;
  Artifacts artifacts_;
  StoredBytes stored_;
};

}  // namespace snug::server

#endif  // SERVER_API_API_H_
