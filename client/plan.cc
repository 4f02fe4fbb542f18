// plan: the table of plans, for a device of the daemon's or a machine that is described; with
// --sites the values that a plan can name, with --tape and --explain the chosen plan from inside.
#include "client/advice.h"
#include "client/commands.h"
#include "client/job_file.h"
#include "client/json.h"
#include "client/memory_chart.h"
#include "client/picture.h"
#include "client/plan_json.h"
#include "client/plan_picture.h"
#include "client/plan_text.h"
#include "proto/snug/bytes.h"
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

// What the command line says of a machine that need not be here. Its sizes have been parsed once.
absl::Status FillMachine(const CommandLine& line, v1::PlanJobRequest& request) {
  if (line.device_kind.empty() && line.device_memory.empty() && line.host_memory.empty())
    return absl::OkStatus();
  v1::GivenMachine& machine = *request.mutable_machine();
  machine.set_device_kind(line.device_kind);
  if (!line.device_memory.empty()) {
    ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(line.device_memory));
    machine.set_device_memory_bytes(bytes);
  }
  if (!line.host_memory.empty()) {
    ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(line.host_memory));
    machine.set_host_memory_bytes(bytes);
  }
  return absl::OkStatus();
}

absl::Status WriteSvg(const v1::PlanJobResponse& reply, const CommandLine& line,
                      Terminal& terminal) {
  const MemoryChart chart = MemoryChartOf(reply);
  RETURN_IF_ERROR(
      WritePicture(line.explain ? MemoryChartSvg(chart) : PlanSvg(reply, chart), line.svg));
  if (line.output != Output::kJson) terminal.out << line.svg << "\n";
  return absl::OkStatus();
}

absl::Status Print(const v1::PlanJobResponse& reply, const CommandLine& line, Terminal& terminal) {
  if (!line.svg.empty()) RETURN_IF_ERROR(WriteSvg(reply, line, terminal));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(PlansToJson(reply));
  } else if (!line.svg.empty()) {
    return absl::OkStatus();
  } else if (line.tape) {
    terminal.out << reply.tape();
  } else if (line.explain) {
    PrintMemoryChart(MemoryChartOf(reply), TextOptionsFor(terminal), terminal.out);
  } else if (line.sites) {
    PrintSites(reply, terminal.out);
  } else {
    PrintPlans(reply, terminal.out);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> PlanJob(const CommandLine& line, Terminal& terminal) {
  v1::PlanJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), ParseJobFile(line.job_text, line.file, line.overrides));
  for (const std::string& note : NotesOf(request.spec()))
    terminal.err << "snug: note: " << note << std::endl;
  request.set_with_sites(line.sites);
  request.set_device(line.device);
  request.set_with_max(line.max);
  request.set_with_tape(line.tape);
  request.set_with_timeline(line.explain || !line.svg.empty());
  RETURN_IF_ERROR(FillMachine(line, request));
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::PlanJobResponse reply,
                   connection.Call(&v1::FineTuning::Stub::PlanJob, request));
  if (reply.length_source() == kNotPrepared)
    RETURN_IF_ERROR(CheckFirstRow(request, connection, terminal));
  RETURN_IF_ERROR(Print(reply, line, terminal));
  return kExitOk;  // That nothing fits is an answer too: `chosen` is -1.
}

}  // namespace snug::client
