// plot: jobs' metrics as a picture, in the terminal or in a file. Works while they run, too.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/chart.h"
#include "client/commands.h"
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

absl::Status WriteSvg(const Chart& chart, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << ChartSvg(chart);
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

int Columns() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : TextOptions().columns;
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
    RETURN_IF_ERROR(WriteSvg(chart, line.file));
    terminal.out << line.file << "\n";
    return kExitOk;
  }
  const char* no_colour = std::getenv("NO_COLOR");
  const bool colour = terminal.is_tty && (no_colour == nullptr || *no_colour == '\0');
  PrintChart(chart, {.columns = Columns(), .colour = colour}, terminal.out);
  return kExitOk;
}

}  // namespace snug::client
