// plan: the table of plans; with --sites the values that a plan can name.
#include "client/advice.h"
#include "client/commands.h"
#include "client/job_file.h"
#include "client/json.h"
#include "client/plan_text.h"
#include "proto/snug/status_macros.h"

namespace snug::client {

namespace {

// The length of rows that are not prepared yet is not known.
constexpr const char* kNotPrepared = "max_seq_length";

// The dataset's first row, as far as it has not been prepared: what cannot be trained on is refused
// here, and not when the job runs. Another failure is a note: there is a plan nevertheless.
absl::Status CheckFirstRow(const v1::PlanJobRequest& plan, Connection& connection,
                           Terminal& terminal) {
  v1::PreviewDatasetRequest request;
  *request.mutable_spec() = plan.spec();
  request.set_rows(1);
  request.set_scan_rows(1);
  const absl::Status status =
      connection.Call(&v1::FineTuning::Stub::PreviewDataset, request).status();
  if (status.ok() || absl::IsInvalidArgument(status)) return status;
  terminal.err << "snug: note: the dataset's first row was not read: " << status.message()
               << std::endl;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> PlanJob(const CommandLine& line, Terminal& terminal) {
  v1::PlanJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), ReadJobFile(line.file, line.overrides));
  for (const std::string& note : NotesOf(request.spec()))
    terminal.err << "snug: note: " << note << std::endl;
  request.set_with_sites(line.sites);
  request.set_device(line.device);
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::PlanJobResponse reply,
                   connection.Call(&v1::FineTuning::Stub::PlanJob, request));
  if (reply.length_source() == kNotPrepared)
    RETURN_IF_ERROR(CheckFirstRow(request, connection, terminal));
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
