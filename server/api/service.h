// snug.v1.FineTuning: each method parses, finds, acts, converts, and decides nothing itself.
//
// Raw methods, because gRPC answers UNIMPLEMENTED to bytes that do not parse. Reads of live jobs
// come from the index's memory; what touches files or the store goes to a pool; what changes
// something goes to the scheduler and is answered after its commit. Of a gRPC thread's time only
// the beginning of a stream about an ended job waits, for one row of the store.
#ifndef SERVER_API_SERVICE_H_
#define SERVER_API_SERVICE_H_

#include <functional>
#include <string>

#include "server/answer/answering.h"
#include "server/api/audit.h"
#include "server/api/callers.h"
#include "server/api/page_token.h"
#include "server/api/raw_service.h"
#include "server/api/streams.h"
#include "server/job/job_index.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/fair_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/task_pool.h"
#include "server/upload/uploads.h"

namespace snug::server {

// More would wait for minutes.
inline constexpr size_t kMaxWaitingChecks = 100;

template <typename Response>
using Answer = std::function<void(absl::StatusOr<Response>)>;

// What the service is made of; all outlive it.
struct ServiceParts {
  JobStore& store;
  JobIndex& index;
  Scheduler& scheduler;
  Advisor& advisor;
  Answering& answering;
  TaskPool& pool;    // Quick: submits, chunks of downloads.
  FairPool& checks;  // Reads models and datasets: validate_only, plans, previews.
  StreamRegistry& streams;
  Callers& callers;
  const Tenants& tenants;
  Tokens& tokens;
  Sessions& sessions;
  AuditLog& audit;
  const Uploads& uploads;
  std::string state_dir;
  v1::ServerInfo info;  // Less what changes.
};

class FineTuningService : public RawService {
 public:
  explicit FineTuningService(ServiceParts parts) : parts_(std::move(parts)) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Stream = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using Upload = grpc::ServerReadReactor<grpc::ByteBuffer>;

  grpc::ServerUnaryReactor* CreateJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* PlanJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* PreviewDataset(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* GetJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* ListJobs(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* CancelJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* PauseJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* ResumeJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* SqueezeJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* RelaxJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* UpdateJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* RerunJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* ExtendJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* DeleteJob(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* CheckStore(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* CreateSession(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* DrainDevice(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* UndrainDevice(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* CreateToken(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* ListTokens(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* RevokeToken(Context*, const Bytes* in, Bytes* out) override;
  Upload* UploadFile(Context*, Bytes* out) override;
  grpc::ServerUnaryReactor* GetUpload(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* ListFiles(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* GetFile(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* DeleteFile(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* GetServerInfo(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* ListCheckpoints(Context*, const Bytes* in, Bytes* out) override;
  grpc::ServerUnaryReactor* GetMetricHistory(Context*, const Bytes* in, Bytes* out) override;
  Stream* WatchJob(Context*, const Bytes* in) override;
  Stream* GetJobLogs(Context*, const Bytes* in) override;
  Stream* DownloadJob(Context*, const Bytes* in) override;
  Stream* Sample(Context*, const Bytes* in) override;
  Stream* BackupStore(Context*, const Bytes* in) override;

 private:
  struct Call {
    Context* context;
    const char* method;
    const Bytes* in;
    Bytes* out = nullptr;  // Of a stream: none.
  };
  template <typename Request>
  struct Allowed {
    Request request;
    Principal who;
  };
  template <typename Request>
  absl::StatusOr<Allowed<Request>> Allow(const absl::StatusOr<Principal>& who,
                                         absl::string_view method, Request request) const;
  template <typename Request, typename Response>
  Answer<Response> Audited(const char* method, const Principal& who, const Request& request,
                           Answer<Response> answer);
  template <typename Request>
  absl::StatusOr<Request> Open(const Call& call) const;
  template <typename Request, typename Response, typename Act>
  grpc::ServerUnaryReactor* Serve(const Call& call, const Act& act);
  template <typename Request, typename Response, typename Act>
  grpc::ServerUnaryReactor* OnPool(const Call& call, const Act& act);
  // Of a call that is the scheduler's to answer.
  template <typename Request>
  grpc::ServerUnaryReactor* Change(const Call& call,
                                   void (Scheduler::*change)(Request, Scheduler::Reply));
  void DoCreate(const Allowed<v1::CreateJobRequest>& call, CreateOrder order,
                const Answer<v1::Job>& answer);
  void Rerun(const Allowed<v1::RerunJobRequest>& call, const Answer<v1::Job>& answer);
  void Extend(const Allowed<v1::ExtendJobRequest>& call, const Answer<v1::Job>& answer);
  void Validate(const Allowed<v1::CreateJobRequest>& call, const Answer<v1::Job>& answer);
  template <typename Request, typename Response>
  void Ask(const Allowed<Request>& call, Answer<Response> answer,
           absl::StatusOr<Response> (Advisor::*ask)(const Request&, const Principal&));

  const ServiceParts parts_;
  const PageTokens page_tokens_;
};

}  // namespace snug::server

#endif  // SERVER_API_SERVICE_H_
