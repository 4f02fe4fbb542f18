#include "tests/fault/crash/kept_files.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/data/sha256.h"
#include "server/job/database.h"

namespace snug::crash {
namespace {

constexpr std::chrono::seconds kPatience{20};

}  // namespace

grpc::Status KeptFiles::Upload(v1::FineTuning::Stub& stub) {
  const std::string content(600, static_cast<char>('a' + made_ % 26));
  const std::string named = absl::StrCat(content, made_++);
  const std::string sha256 = server::Sha256Hex(named);
  unsure_.insert(sha256);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::File made;
  const auto stream = stub.UploadFile(&context, &made);
  v1::UploadFileRequest first, rest;
  first.mutable_header()->set_filename("rows.jsonl");
  first.mutable_header()->set_sha256(sha256);
  rest.set_content(named);
  rest.set_last(true);
  stream->Write(first);
  stream->Write(rest);
  stream->WritesDone();
  grpc::Status status = stream->Finish();
  if (!status.ok()) return status;
  kept_[sha256] = made.id();
  unsure_.erase(sha256);
  return status;
}

grpc::Status KeptFiles::Delete(v1::FineTuning::Stub& stub) {
  if (kept_.empty()) return grpc::Status::OK;
  const auto [sha256, id] = *kept_.begin();
  kept_.erase(kept_.begin());
  unsure_.insert(sha256);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::DeleteFileRequest request;
  request.set_file(id);
  v1::File gone;
  grpc::Status status = stub.DeleteFile(&context, request, &gone);
  if (status.ok()) unsure_.erase(sha256);
  return status;
}

grpc::Status KeptFiles::BackUp(v1::FineTuning::Stub& stub) const {
  const std::string path = folder_ + "/backup.db";
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const auto stream = stub.BackupStore(&context, {});
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    for (v1::FileChunk chunk; stream->Read(&chunk);) file << chunk.content();
  }
  grpc::Status status = stream->Finish();
  if (!status.ok()) return status;
  const auto database = server::Database::Open(path);
  std::string said = "it cannot be opened";
  if (database.ok())
    (*database)
        ->Query("PRAGMA integrity_check(1)",
                [&](const server::Row& row) {
                  said = row.Text(0);
                  return absl::OkStatus();
                })
        .IgnoreError();
  if (said == "ok") return status;
  return {grpc::StatusCode::DATA_LOSS, "a backup is damaged: " + said};
}

std::string KeptFiles::Compare(v1::FineTuning::Stub& stub, const std::string& state) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  v1::ListFilesRequest request;
  request.set_page_size(1000);
  v1::ListFilesResponse listed;
  if (!stub.ListFiles(&context, request, &listed).ok()) return "";  // Killed meanwhile.
  std::map<std::string, std::string> there;
  for (const v1::File& file : listed.files()) there[file.sha256()] = file.id();
  for (const auto& [sha256, id] : kept_)
    if (!there.contains(sha256)) return absl::StrCat("the upload ", id, " is lost");
  for (const auto& [sha256, id] : there)
    if (!kept_.contains(sha256) && !unsure_.contains(sha256))
      return absl::StrCat("the file ", id, " was deleted, and is there");
  kept_ = std::move(there);
  unsure_.clear();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(state, error))
    if (absl::StartsWith(entry.path().filename().string(), "snug.db.backup-"))
      return absl::StrCat("a copy of the store is left behind: ", entry.path().string());
  return "";
}

}  // namespace snug::crash
