// files: datasets that the daemon keeps for jobs that name their ids.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/errors.h"
#include "client/file_hash.h"
#include "client/json.h"
#include "client/pages.h"
#include "client/table.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// From where an upload that broke off has ended.
absl::StatusOr<v1::File> Send(Connection& connection, int fd, const std::string& file) {
  v1::UploadFileRequest request;
  v1::UploadHeader& header = *request.mutable_header();
  header.set_filename(std::filesystem::path(file).filename().string());
  ASSIGN_OR_RETURN(*header.mutable_sha256(), Sha256OfFile(fd, file));
  v1::GetUploadRequest asked;
  asked.set_sha256(header.sha256());
  ASSIGN_OR_RETURN(const v1::Upload there,
                   connection.Call(&v1::FineTuning::Stub::GetUpload, asked));
  header.set_offset(there.received_bytes());
  grpc::ClientContext context;
  v1::File kept;
  const auto writer = connection.stub().UploadFile(&context, &kept);
  const absl::Status read =
      ReadFrom(fd, there.received_bytes(), file, [&](absl::string_view chunk) {
        request.set_content(std::string(chunk));
        const bool sent = writer->Write(request);
        request.clear_header();
        return sent;
      });
  if (!read.ok()) context.TryCancel();
  request.clear_content();
  request.set_last(true);
  writer->Write(request);
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  RETURN_IF_ERROR(read);
  if (!status.ok()) return ToStatus(status);
  return kept;
}

absl::StatusOr<int> UploadFiles(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  for (const std::string& file : line.files) {
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", file));
    const absl::Cleanup end = [fd] { close(fd); };
    ASSIGN_OR_RETURN(const v1::File kept, Send(connection, fd, file));
    if (line.output == Output::kJson)
      terminal.out << JsonText(ToJson(kept));
    else
      terminal.out << kept.id() << "\n";
  }
  return kExitOk;
}

absl::StatusOr<int> ListFiles(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::ListFilesResponse list,
                   AllPages(connection, &v1::FineTuning::Stub::ListFiles, v1::ListFilesRequest()));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(ToJson(list));
    return kExitOk;
  }
  Table table({"ID", "FILE", "SIZE", "SENT"});
  for (const v1::File& file : list.files())
    table.AddRow({file.id(), Printable(file.filename()), FormatBytes(file.bytes()),
                  google::protobuf::util::TimeUtil::ToString(file.create_time())});
  table.Print(terminal.out);
  return kExitOk;
}

absl::StatusOr<int> DeleteFiles(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  for (const std::string& id : line.files) {
    v1::DeleteFileRequest request;
    request.set_file(id);
    ASSIGN_OR_RETURN(const v1::File file,
                     connection.Call(&v1::FineTuning::Stub::DeleteFile, request));
    if (line.output == Output::kJson)
      terminal.out << JsonText(ToJson(file));
    else
      terminal.out << file.id() << " deleted\n";
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> ManageFiles(const CommandLine& line, Terminal& terminal) {
  if (line.action == "upload") return UploadFiles(line, terminal);
  return line.action == "list" ? ListFiles(line, terminal) : DeleteFiles(line, terminal);
}

}  // namespace snug::client
