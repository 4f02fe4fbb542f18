// plot: jobs' metrics as a picture, in the terminal or in a file. Works while they run, too.
#include "client/chart.h"
#include "client/commands.h"
#include "client/picture.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

absl::StatusOr<v1::Job> Find(Connection& connection, const std::string& id) {
  v1::GetJobRequest request;
  request.set_id(id);
  return connection.Call(&v1::FineTuning::Stub::GetJob, request);
}

absl::StatusOr<std::string> MetricsOf(Connection& connection, const std::string& id) {
  v1::GetJobLogsRequest request;
  request.set_id(id);
  request.set_metrics(true);
  grpc::ClientContext context;
  const auto reader = connection.stub().GetJobLogs(&context, request);
  std::string text;
  v1::LogChunk chunk;
  while (reader->Read(&chunk)) text += chunk.text();
  RETURN_IF_ERROR(ToStatus(reader->Finish()));
  return text;
}

}  // namespace

absl::StatusOr<int> PlotJobs(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  Chart chart;
  for (const std::string& id : line.jobs) {
    ASSIGN_OR_RETURN(const v1::Job job, Find(connection, id));
    ASSIGN_OR_RETURN(const std::string metrics, MetricsOf(connection, job.id()));
    RETURN_IF_ERROR(AddJob(job, metrics, chart));
  }
  if (chart.panels.empty())
    return absl::FailedPreconditionError("nothing to draw yet: no step has been done");
  if (!line.file.empty()) {
    RETURN_IF_ERROR(WritePicture(ChartSvg(chart), line.file));
    terminal.out << line.file << "\n";
    return kExitOk;
  }
  PrintChart(chart, TextOptionsFor(terminal), terminal.out);
  return kExitOk;
}

}  // namespace snug::client
