#include "server/grpc/service.h"

#include <memory>
#include <utility>

#include "proto/snug/status_macros.h"
#include "server/grpc/grpc_status.h"
#include "server/grpc/stream_call.h"
#include "server/grpc/upload_call.h"
#include "server/grpc/watch_call.h"

namespace snug::server {

template <typename Request, typename Message>
FineTuningService::Stream* FineTuningService::Open(
    const Context& context, const Bytes& in,
    absl::StatusOr<MessageSource<Message>> (Api::*method)(const Principal&, const Request&)) {
  const absl::StatusOr<Principal> who = callers_.Find(context);
  const auto open = [&]() -> absl::StatusOr<MessageSource<grpc::ByteBuffer>> {
    Request request;
    RETURN_IF_ERROR(Decode(in, kMaxRequestBytes, request));
    RETURN_IF_ERROR(who.status());
    ASSIGN_OR_RETURN(MessageSource<Message> source, (api_.*method)(*who, request));
    return Encoded(std::move(source));
  };
  return StreamCall(open(), pool_, streams_, callers_.WatchOver(who), Count(context));
}

FineTuningService::Stream* FineTuningService::GetJobLogs(Context* context, const Bytes* in) {
  return Open(*context, *in, &Api::GetJobLogs);
}

FineTuningService::Stream* FineTuningService::DownloadJob(Context* context, const Bytes* in) {
  return Open(*context, *in, &Api::DownloadJob);
}

FineTuningService::Stream* FineTuningService::Sample(Context* context, const Bytes* in) {
  return Open(*context, *in, &Api::Sample);
}

FineTuningService::Stream* FineTuningService::BackupStore(Context* context, const Bytes* in) {
  return Open(*context, *in, &Api::BackupStore);
}

FineTuningService::Stream* FineTuningService::WatchJob(Context* context, const Bytes* in) {
  const absl::StatusOr<Principal> who = callers_.Find(*context);
  const auto watch = [&](const std::shared_ptr<JobWatcher>& watcher) -> absl::StatusOr<JobPtr> {
    v1::WatchJobRequest request;
    RETURN_IF_ERROR(Decode(*in, kMaxRequestBytes, request));
    RETURN_IF_ERROR(who.status());
    return api_.WatchJob(*who, request, watcher);
  };
  return WatchCall(watch, streams_, callers_.WatchOver(who), Count(*context));
}

FineTuningService::Reading* FineTuningService::UploadFile(Context* context, Bytes* out) {
  const absl::StatusOr<Principal> who = callers_.Find(*context);
  const auto begin =
      [this, who](const v1::UploadHeader& header) -> absl::StatusOr<std::unique_ptr<FileUpload>> {
    RETURN_IF_ERROR(who.status());
    return api_.UploadFile(*who, header);
  };
  return UploadCall(out, pool_, begin, callers_.WatchOver(who), Count(*context));
}

}  // namespace snug::server
