// The API's calls about files that clients send.
#include "google/protobuf/util/time_util.h"
#include "server/api/calls.h"
#include "server/api/masks.h"
#include "server/api/pages.h"
#include "server/job/job_key.h"

namespace snug::server {
namespace {

using google::protobuf::util::TimeUtil;

v1::File Named(v1::File file, const Principal& who) {
  file.set_name(DatasetName(TenantOf(who.name()), file.id()));
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileUpload>> Api::UploadFile(const Principal& who,
                                                            const v1::UploadHeader& header) {
  v1::UploadFileRequest request;
  *request.mutable_header() = header;
  const auto begin = [&]() -> absl::StatusOr<std::unique_ptr<Reception>> {
    RETURN_IF_ERROR(Allow(who, request).status());
    RETURN_IF_ERROR(CheckMayUpload(who));
    return parts_.uploads.Begin(who.name(), header);
  };
  absl::StatusOr<std::unique_ptr<Reception>> reception = begin();
  if (reception.ok())
    return std::make_unique<FileUpload>(parts_.audit, stored_, who, *std::move(reception));
  WriteAudit(parts_.audit, {who, MethodOf<v1::UploadFileRequest>(), ""},
             absl::StatusOr<v1::File>(reception.status()));
  return reception.status();
}

FileUpload::~FileUpload() {
  if (reception_ != nullptr) End(absl::CancelledError("the upload broke off"));
}

absl::Status FileUpload::Append(absl::string_view content) {
  if (reception_ == nullptr) return ended_;
  absl::Status appended = stored_.Take(who_.name(), static_cast<int64_t>(content.size()));
  if (appended.ok()) appended = reception_->Append(content);
  if (!appended.ok()) End(appended);
  return appended;
}

absl::StatusOr<v1::File> FileUpload::Finish() {
  if (reception_ == nullptr) return ended_;
  absl::StatusOr<v1::File> file = reception_->Finish();
  if (file.ok()) file = Named(*std::move(file), who_);
  End(file);
  return file;
}

void FileUpload::End(const absl::StatusOr<v1::File>& file) {
  reception_.reset();
  ended_ = file.ok() ? absl::FailedPreconditionError("the upload has ended") : file.status();
  WriteAudit(audit_, {who_, MethodOf<v1::UploadFileRequest>(), ""}, file);
}

void Api::GetUpload(const Principal& who, const v1::GetUploadRequest& request,
                    Answer<v1::Upload> answer) {
  OnPool(who, request, std::move(answer), [this](const auto& call) {
    v1::Upload upload;
    upload.set_received_bytes(parts_.uploads.Received(call.who.name(), call.request.sha256()));
    return upload;
  });
}

void Api::ListFiles(const Principal& who, const v1::ListFilesRequest& request,
                    Answer<v1::ListFilesResponse> answer) {
  OnPool(
      who, request, std::move(answer),
      [this](const auto& call) -> absl::StatusOr<v1::ListFilesResponse> {
        RETURN_IF_ERROR(CheckParent(call.request.parent(), TenantOf(call.who.name())));
        std::vector<Listed<v1::File>> list;
        for (const v1::File& file : parts_.uploads.List(call.who.name()))
          list.push_back(
              {SortedBackwards(TimeUtil::TimestampToMicroseconds(file.create_time())) + file.id(),
               Named(file, call.who)});
        return ResponseOf(PageOf(call.request, std::move(list), page_tokens_),
                          &v1::ListFilesResponse::add_files);
      });
}

void Api::GetFile(const Principal& who, const v1::GetFileRequest& request,
                  Answer<v1::File> answer) {
  OnPool(who, request, std::move(answer), [this](const auto& call) -> absl::StatusOr<v1::File> {
    const google::protobuf::FieldMask& mask = call.request.read_mask();
    RETURN_IF_ERROR(CheckReadMask(mask, *v1::File::descriptor()));
    ASSIGN_OR_RETURN(v1::File file, parts_.uploads.Find(call.who.name(), call.request.file()));
    return Trimmed(Named(std::move(file), call.who), mask);
  });
}

void Api::DeleteFile(const Principal& who, const v1::DeleteFileRequest& request,
                     Answer<v1::File> answer) {
  OnPool(who, request, std::move(answer), [this](const auto& call) -> absl::StatusOr<v1::File> {
    const std::string owner = call.who.name(), &id = call.request.file();
    ASSIGN_OR_RETURN(const v1::File file, parts_.uploads.Find(owner, id));
    ASSIGN_OR_RETURN(const std::string path, parts_.uploads.PathOf(owner, id));
    if (const std::string job = parts_.index.LiveJobOn(path); !job.empty())
      return WithReason(absl::FailedPreconditionError(absl::StrCat(
                            "job \"", IdIn(job), "\" has not ended, and is trained on it")),
                        "FILE_IN_USE");
    RETURN_IF_ERROR(parts_.uploads.Delete(owner, id));
    return Named(file, call.who);
  });
}

}  // namespace snug::server
