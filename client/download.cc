// download: the files of a finished job's output or of a checkpoint, all of them or none, and how
// to serve or upload them;
// checkpoints: which there are.
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/commands.h"
#include "client/hub_id.h"
#include "client/json.h"
#include "client/model_card.h"
#include "client/output_folder.h"
#include "client/serving.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr char kAdapterConfig[] = "adapter_config.json";

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

// What is left of it when it goes to the hub, where a path here means nothing and says too much.
absl::Status PrepareToPush(const v1::Job& job, const CommandLine& line, OutputFolder& folder,
                           Terminal& terminal) {
  RETURN_IF_ERROR(folder.Replace("README.md", ModelCard(job, line.push)));
  if (HubIdOfFolder(job.spec().model())) return absl::OkStatus();
  terminal.err << "snug: note: the base " << Printable(job.spec().model())
               << " is no snapshot of the hub's: the model card names no base_model; add its id on "
                  "the hub if it has one"
               << std::endl;
  if (job.spec().method() == v1::JobSpec::FULL) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string config, folder.Read(kAdapterConfig));
  ASSIGN_OR_RETURN(const std::string without, WithoutBasePath(config));
  return folder.Replace(kAdapterConfig, without);
}

// A merged model has a repository of its own, if any.
std::string UploadCommand(const CommandLine& line) {
  return absl::StrCat("hf upload ", line.push, " ", ShellWord(line.directory),
                      " . --exclude 'merged/*'");
}

void PrintAsJson(const v1::Job& job, const OutputFolder& folder, const CommandLine& line,
                 Terminal& terminal) {
  Json files = Json::array();
  for (const auto& file : folder.files())
    files.push_back({{"path", file.path}, {"bytes", absl::StrCat(file.bytes)}});
  Json json = Json::object({{"directory", line.directory}, {"files", files}});
  if (!line.checkpoint) {
    json["serve"] = Json::array();
    for (const Serving& serving : ServingOf(job, line.directory))
      json["serve"].push_back({{"reader", serving.reader}, {"lines", serving.lines}});
  }
  if (!line.push.empty()) json["upload"] = UploadCommand(line);
  terminal.out << JsonText(json);
}

void PrintAll(const v1::Job& job, const OutputFolder& folder, const CommandLine& line,
              Terminal& terminal) {
  if (line.output == Output::kJson) return PrintAsJson(job, folder, line, terminal);
  for (const auto& file : folder.files()) {
    terminal.out << line.directory << "/" << Printable(file.path) << "  " << FormatBytes(file.bytes)
                 << "\n";
  }
  if (!line.checkpoint) PrintServing(ServingOf(job, line.directory), terminal.out);
  if (!line.push.empty())
    terminal.out << "\nupload it, logged in with `hf auth login`:\n  " << UploadCommand(line)
                 << "\n";
}

}  // namespace

absl::StatusOr<int> DownloadJob(const CommandLine& line, Terminal& terminal) {
  if (!line.push.empty()) RETURN_IF_ERROR(CheckRepoId("--push", line.push));
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Create(line.directory));
  v1::GetJobRequest asked;
  asked.set_id(line.job);
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&v1::FineTuning::Stub::GetJob, asked));
  v1::DownloadJobRequest request;
  request.set_id(line.job);
  if (line.checkpoint) request.set_checkpoint_step(*line.checkpoint);
  grpc::ClientContext context;
  const auto reader = connection.stub().DownloadJob(&context, request);
  RETURN_IF_ERROR(Receive(*reader, context, folder));
  if (!line.push.empty()) RETURN_IF_ERROR(PrepareToPush(job, line, folder, terminal));
  RETURN_IF_ERROR(folder.Commit());
  PrintAll(job, folder, line, terminal);
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
