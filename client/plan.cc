// plan: the table of plans; with --sites the values that a plan can name.
#include "client/commands.h"
#include "client/job_file.h"
#include "client/json.h"
#include "client/plan_text.h"
#include "proto/snug/status_macros.h"

namespace snug::client {

absl::StatusOr<int> PlanJob(const CommandLine& line, Terminal& terminal) {
  v1::PlanJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), ReadJobFile(line.file, line.overrides));
  request.set_with_sites(line.sites);
  request.set_device(line.device);
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::PlanJobResponse reply,
                   connection.Call(&v1::FineTuning::Stub::PlanJob, request));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(ToJson(reply));
  } else if (line.sites) {
    PrintSites(reply, terminal.out);
  } else {
    PrintPlans(reply, terminal.out);
  }
  return kExitOk;  // That nothing fits is an answer too: `chosen` is -1.
}

}  // namespace snug::client
