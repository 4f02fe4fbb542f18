// plot: jobs' metrics as a picture, in the terminal or in a file. Works while they run, too.
#include "client/chart.h"
#include "client/commands.h"
#include "client/job_text.h"
#include "client/picture.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

absl::StatusOr<v1::Job> Find(Connection& connection, const std::string& id) {
  v1::GetJobRequest request;
  request.set_id(id);
  return connection.Call(&v1::FineTuning::Stub::GetJob, request);
}

absl::StatusOr<v1::GetMetricHistoryResponse> HistoryOf(Connection& connection,
                                                       const std::string& id) {
  v1::GetMetricHistoryRequest request;
  request.set_id(id);
  return connection.Call(&v1::FineTuning::Stub::GetMetricHistory, request);
}

}  // namespace

absl::StatusOr<int> PlotJobs(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  Chart chart;
  for (const std::string& id : line.jobs) {
    ASSIGN_OR_RETURN(const v1::Job job, Find(connection, id));
    ASSIGN_OR_RETURN(const v1::GetMetricHistoryResponse history,
                     HistoryOf(connection, NameOf(job)));
    AddJob(job, history, chart);
  }
  if (chart.panels.empty())
    return absl::FailedPreconditionError("nothing to draw yet: no step has been done");
  if (!line.svg.empty()) {
    RETURN_IF_ERROR(WritePicture(ChartSvg(chart), line.svg));
    terminal.out << line.svg << "\n";
  }
  if (!line.png.empty()) {
    RETURN_IF_ERROR(WritePng(ChartSvg(chart), line.png));
    terminal.out << line.png << "\n";
  }
  if (!line.svg.empty() || !line.png.empty()) return kExitOk;
  PrintChart(chart, TextOptionsFor(terminal), terminal.out);
  return kExitOk;
}

}  // namespace snug::client
