// snug.v1.FineTuning over gRPC: a door to the API. Finds out who calls, decodes, hands over, and
// encodes what comes back.
//
// Raw methods, because gRPC answers UNIMPLEMENTED to bytes that do not parse.
#ifndef SERVER_GRPC_SERVICE_H_
#define SERVER_GRPC_SERVICE_H_

#include "server/api/api.h"
#include "server/grpc/grpc_callers.h"
#include "server/grpc/raw_service.h"
#include "server/grpc/streams.h"
#include "server/grpc/unary_call.h"

namespace snug::server {

class FineTuningService : public RawService {
 public:
  // All outlive it. Streams are read on `pool`.
  FineTuningService(Api& api, GrpcCallers& callers, TaskPool& pool, StreamRegistry& streams)
      : api_(api), callers_(callers), pool_(pool), streams_(streams) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Unary = grpc::ServerUnaryReactor;
  using Stream = grpc::ServerWriteReactor<grpc::ByteBuffer>;
  using Reading = grpc::ServerReadReactor<grpc::ByteBuffer>;

  Unary* CreateJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::CreateJob);
  }
  Unary* PlanJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::PlanJob);
  }
  Unary* PreviewDataset(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::PreviewDataset);
  }
  Unary* GetJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::GetJob);
  }
  Unary* ListJobs(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ListJobs);
  }
  Unary* CancelJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::CancelJob);
  }
  Unary* PauseJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::PauseJob);
  }
  Unary* ResumeJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ResumeJob);
  }
  Unary* SqueezeJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::SqueezeJob);
  }
  Unary* RelaxJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::RelaxJob);
  }
  Unary* UpdateJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::UpdateJob);
  }
  Unary* RerunJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::RerunJob);
  }
  Unary* ExtendJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ExtendJob);
  }
  Unary* DeleteJob(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::DeleteJob);
  }
  Unary* ListCheckpoints(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ListCheckpoints);
  }
  Unary* ListArtifacts(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ListArtifacts);
  }
  Unary* GetMetricHistory(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::GetMetricHistory);
  }
  Unary* GetServerInfo(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::GetServerInfo);
  }
  Unary* GetUpload(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::GetUpload);
  }
  Unary* ListFiles(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ListFiles);
  }
  Unary* GetFile(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::GetFile);
  }
  Unary* DeleteFile(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::DeleteFile);
  }
  Unary* CheckStore(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::CheckStore);
  }
  Unary* CreateSession(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::CreateSession);
  }
  Unary* CreateToken(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::CreateToken);
  }
  Unary* ListTokens(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::ListTokens);
  }
  Unary* RevokeToken(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::RevokeToken);
  }
  Unary* DrainDevice(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::DrainDevice);
  }
  Unary* UndrainDevice(Context* context, const Bytes* in, Bytes* out) override {
    return Call(*context, *in, out, &Api::UndrainDevice);
  }
  Stream* WatchJob(Context* context, const Bytes* in) override;
  Stream* GetJobLogs(Context* context, const Bytes* in) override;
  Stream* DownloadJob(Context* context, const Bytes* in) override;
  Stream* Sample(Context* context, const Bytes* in) override;
  Stream* BackupStore(Context* context, const Bytes* in) override;
  Reading* UploadFile(Context* context, Bytes* out) override;

 private:
  template <typename Request, typename Response>
  Unary* Call(const Context& context, const Bytes& in, Bytes* out,
              void (Api::*method)(const Principal&, const Request&, Answer<Response>)) {
    // Before the request is looked at: who is let in is no stranger, whatever he sends.
    const absl::StatusOr<Principal> who = callers_.Find(context);
    const auto act = [&](const Request& request, Answer<Response> answer) {
      who.ok() ? (api_.*method)(*who, request, std::move(answer)) : answer(who.status());
    };
    return UnaryCall::Start<Request, Response>(in, out, act, Count(context));
  }
  CancelHook Count(const Context& context) {
    return [this, &context] { callers_.NoteTakenBack(context); };
  }
  template <typename Request, typename Message>
  Stream* Open(const Context& context, const Bytes& in,
               absl::StatusOr<MessageSource<Message>> (Api::*method)(const Principal&,
                                                                     const Request&));

  Api& api_;
  GrpcCallers& callers_;
  TaskPool& pool_;
  StreamRegistry& streams_;
};

}  // namespace snug::server

#endif  // SERVER_GRPC_SERVICE_H_
