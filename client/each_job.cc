#include "client/each_job.h"

#include "client/json.h"
#include "proto/snug/status_macros.h"

namespace snug::client {

absl::StatusOr<int> ForEachJob(const CommandLine& line, Terminal& terminal, const AskOfJob& ask,
                               const JobInWords& words) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  absl::Status first;
  for (const std::string& id : line.jobs) {
    const absl::StatusOr<v1::Job> job = ask(connection, id);
    if (!job.ok()) {
      if (!first.ok() && line.output == Output::kTable)
        terminal.err << "snug: " << job.status().message() << std::endl;
      first.Update(job.status());
    } else if (line.output == Output::kJson) {
      terminal.out << JsonText(JobToJson(*job));
    } else {
      terminal.out << words(*job) << std::endl;
    }
  }
  RETURN_IF_ERROR(first);
  return kExitOk;
}

}  // namespace snug::client
