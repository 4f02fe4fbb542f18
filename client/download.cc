// download: the files of a finished job's output or of a checkpoint, all of them or none;
// checkpoints: which there are.
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/commands.h"
#include "client/json.h"
#include "client/output_folder.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// Writes the stream's files. A failure on this side ends the stream and comes first.
absl::Status Receive(grpc::ClientReader<v1::FileChunk>& reader, grpc::ClientContext& context,
                     OutputFolder& folder) {
  v1::FileChunk chunk;
  absl::Status written;
  while (written.ok() && reader.Read(&chunk)) {
    if (!chunk.path().empty()) written = folder.Begin(chunk.path(), chunk.file_bytes());
    if (written.ok()) written = folder.Append(chunk.content());
  }
  if (!written.ok()) context.TryCancel();
  const grpc::Status status = reader.Finish();
  return written.ok() ? ToStatus(status) : written;
}

void PrintFiles(const OutputFolder& folder, const CommandLine& line, Terminal& terminal) {
  if (line.output == Output::kJson) {
    Json files = Json::array();
    for (const auto& file : folder.files())
      files.push_back({{"path", file.path}, {"bytes", absl::StrCat(file.bytes)}});
    terminal.out << JsonText(Json::object({{"directory", line.directory}, {"files", files}}));
    return;
  }
  for (const auto& file : folder.files()) {
    terminal.out << line.directory << "/" << Printable(file.path) << "  " << FormatBytes(file.bytes)
                 << "\n";
  }
}

}  // namespace

absl::StatusOr<int> DownloadJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Create(line.directory));
  v1::DownloadJobRequest request;
  request.set_id(line.job);
  if (line.checkpoint) request.set_checkpoint_step(*line.checkpoint);
  grpc::ClientContext context;
  const auto reader = connection.stub().DownloadJob(&context, request);
  RETURN_IF_ERROR(Receive(*reader, context, folder));
  RETURN_IF_ERROR(folder.Commit());
  PrintFiles(folder, line, terminal);
  return kExitOk;
}

absl::StatusOr<int> ListCheckpoints(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::ListCheckpointsRequest request;
  request.set_id(line.job);
  ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                   connection.Call(&v1::FineTuning::Stub::ListCheckpoints, request));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(Json::object({{"checkpoints", ToJson(response)["checkpoints"]}}));
    return kExitOk;
  }
  if (response.checkpoints().empty()) terminal.out << "no checkpoints\n";
  if (response.checkpoints().empty()) return kExitOk;
  Table table({">STEP", ">ATTEMPT", ">SIZE", "WRITTEN"});
  for (const v1::Checkpoint& checkpoint : response.checkpoints()) {
    const absl::Time written = absl::FromUnixSeconds(checkpoint.create_time().seconds());
    table.AddRow({absl::StrCat(checkpoint.global_step()), absl::StrCat(checkpoint.epoch()),
                  FormatBytes(checkpoint.bytes()),
                  absl::FormatTime("%Y-%m-%d %H:%M:%S", written, absl::LocalTimeZone())});
  }
  table.Print(terminal.out);
  return kExitOk;
}

}  // namespace snug::client
