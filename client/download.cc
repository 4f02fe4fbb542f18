// download: the files of a finished job's output or of a checkpoint, all of them or none, and how
// to serve or upload them;
// artifacts: which there are; checkpoints: the same of these.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/artifacts.h"
#include "client/commands.h"
#include "client/hub_id.h"
#include "client/json.h"
#include "client/model_card.h"
#include "client/output_folder.h"
#include "client/pages.h"
#include "client/serving.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr char kAdapterConfig[] = "adapter_config.json";

// GetJob knows a job, and no checkpoint by its name: what is before it names the job.
std::string JobPart(const std::string& name) {
  return name.substr(0, std::min(name.find("/checkpoints/"), name.find("/artifacts/")));
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
  if (job.spec().method() == v1::JobSpec::METHOD_FULL) return absl::OkStatus();
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
    files.push_back(
        {{"path", file.path}, {"bytes", absl::StrCat(file.bytes)}, {"sha256", file.sha256}});
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
  v1::GetJobRequest asked;
  asked.set_id(JobPart(line.job));
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&v1::FineTuning::Stub::GetJob, asked));
  const std::string what = absl::StrCat(job.id(), " ", line.checkpoint.value_or(-1), " ", line.job);
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Create(line.directory, what));
  ASSIGN_OR_RETURN(const std::vector<v1::Artifact> artifacts, ArtifactsOf(connection, line));
  const absl::Status fetched = Fetch(connection, artifacts, folder);
  if (!fetched.ok() && folder.has_some())
    terminal.err << "snug: note: " << folder.partial()
                 << " has what came; the same command goes on from there" << std::endl;
  RETURN_IF_ERROR(fetched);
  if (!line.push.empty()) RETURN_IF_ERROR(PrepareToPush(job, line, folder, terminal));
  RETURN_IF_ERROR(folder.Commit());
  PrintAll(job, folder, line, terminal);
  return kExitOk;
}

absl::StatusOr<int> ListArtifacts(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const std::vector<v1::Artifact> artifacts, ArtifactsOf(connection, line));
  if (line.output == Output::kJson) {
    Json list = Json::array();
    for (const v1::Artifact& artifact : artifacts) list.push_back(ToJson(artifact));
    terminal.out << JsonText(Json::object({{"artifacts", list}}));
    return kExitOk;
  }
  Table table({"FILE", ">SIZE", "SHA-256"});
  for (const v1::Artifact& artifact : artifacts)
    table.AddRow(
        {Printable(artifact.path()), FormatBytes(artifact.bytes()), Printable(artifact.sha256())});
  table.Print(terminal.out);
  return kExitOk;
}

absl::StatusOr<int> ListCheckpoints(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::ListCheckpointsRequest request;
  request.set_id(line.job);
  ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse response,
                   AllPages(connection, &v1::FineTuning::Stub::ListCheckpoints, request));
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
