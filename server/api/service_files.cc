// The service's methods about files that clients send.
#include "server/api/serving.h"
#include "server/api/upload_call.h"
#include "server/job/errors.h"

namespace snug::server {

FineTuningService::Upload* FineTuningService::UploadFile(Context* context, Bytes* out) {
  const absl::StatusOr<Principal> who = parts_.callers.Find(*context);
  const auto begin = [this, who](const v1::UploadHeader& header)
      -> absl::StatusOr<std::unique_ptr<Reception>> {
    RETURN_IF_ERROR(Allow(who, "UploadFile", header).status());
    RETURN_IF_ERROR(CheckMayUpload(*who));
    return parts_.uploads.Begin(who->name(), header);
  };
  const auto end = [this, who](const absl::StatusOr<v1::File>& file) {
    if (!who.ok()) return;
    parts_.audit.Write({.who = *who,
                        .method = "UploadFile",
                        .resource = ResourceOf(v1::UploadFileRequest(), file)},
                       file.status(), absl::Now());
  };
  return ReceiveUpload(out, parts_.pool, begin, end);
}

grpc::ServerUnaryReactor* FineTuningService::GetUpload(Context* context, const Bytes* in,
                                                       Bytes* out) {
  using Request = v1::GetUploadRequest;
  return OnPool<Request, v1::Upload>(
      {context, "GetUpload", in, out}, [this](const Allowed<Request>& call) {
        v1::Upload upload;
        upload.set_received_bytes(
            parts_.uploads.Received(call.who.name(), call.request.sha256()));
        return upload;
      });
}

grpc::ServerUnaryReactor* FineTuningService::ListFiles(Context* context, const Bytes* in,
                                                       Bytes* out) {
  using Request = v1::ListFilesRequest;
  using Reply = v1::ListFilesResponse;
  return OnPool<Request, Reply>({context, "ListFiles", in, out},
                                 [this](const Allowed<Request>& call) {
                                   Reply reply;
                                   for (v1::File& file : parts_.uploads.List(call.who.name()))
                                     *reply.add_files() = std::move(file);
                                   return reply;
                                 });
}

grpc::ServerUnaryReactor* FineTuningService::GetFile(Context* context, const Bytes* in,
                                                     Bytes* out) {
  using Request = v1::GetFileRequest;
  return OnPool<Request, v1::File>({context, "GetFile", in, out},
                                    [this](const Allowed<Request>& call) {
                                      return parts_.uploads.Find(call.who.name(),
                                                                 call.request.file());
                                    });
}

grpc::ServerUnaryReactor* FineTuningService::DeleteFile(Context* context, const Bytes* in,
                                                        Bytes* out) {
  using Request = v1::DeleteFileRequest;
  return OnPool<Request, v1::File>(
      {context, "DeleteFile", in, out},
      [this](const Allowed<Request>& call) -> absl::StatusOr<v1::File> {
        const std::string owner = call.who.name(), &id = call.request.file();
        ASSIGN_OR_RETURN(const v1::File file, parts_.uploads.Find(owner, id));
        ASSIGN_OR_RETURN(const std::string path, parts_.uploads.PathOf(owner, id));
        if (const std::string job = parts_.index.LiveJobOn(path); !job.empty())
          return WithReason(absl::FailedPreconditionError(absl::StrCat(
                                "job \"", job, "\" has not ended, and is trained on it")),
                            "FILE_IN_USE");
        RETURN_IF_ERROR(parts_.uploads.Delete(owner, id));
        return file;
      });
}

}  // namespace snug::server
