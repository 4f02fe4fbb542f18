// submit: durable when it returns, and once however often it is tried.
#include "client/advice.h"
#include "client/commands.h"
#include "client/job_file.h"
#include "client/json.h"
#include "client/request_id.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// Reading a model's headers takes milliseconds; one on a slow disk is checked when it is prepared.
constexpr absl::Duration kCheckFor = absl::Seconds(30);

// What the job's files say, before there is a job. That there was no time or no room to check is no
// reason to refuse it: the same is checked again before it is prepared.
absl::Status Check(v1::CreateJobRequest request, Connection& connection) {
  request.clear_request_id();
  request.set_validate_only(true);
  const absl::Status status =
      connection.Call(&v1::FineTuning::Stub::CreateJob, request, kCheckFor).status();
  const bool not_checked = absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
  return not_checked ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<int> SubmitJob(const CommandLine& line, Terminal& terminal) {
  v1::CreateJobRequest request;
  ASSIGN_OR_RETURN(*request.mutable_spec(), ParseJobFile(line.job_text, line.file, line.overrides));
  for (const std::string& note : NotesOf(request.spec()))
    terminal.err << "snug: note: " << note << std::endl;
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  if (!line.no_check) RETURN_IF_ERROR(Check(request, connection));
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&v1::FineTuning::Stub::CreateJob, request));
  if (line.output == Output::kTable) {
    terminal.out << job.id() << std::endl;
  } else if (!line.watch) {
    terminal.out << JsonText(JobToJson(job));
  }
  if (!line.watch) return kExitOk;
  CommandLine watch = line;
  watch.job = job.id();
  return Watch(connection, watch, terminal);
}

}  // namespace snug::client
