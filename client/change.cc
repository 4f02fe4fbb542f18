// update, rerun, extend, delete: what a user changes of jobs that there are.
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/commands.h"
#include "client/each_job.h"
#include "client/job_text.h"
#include "client/json.h"
#include "client/request_id.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

using Stub = v1::FineTuning::Stub;

absl::Status AddChange(const std::string& change, v1::UpdateJobRequest& request) {
  const std::pair<std::string, std::string> pair = absl::StrSplit(change, absl::MaxSplits('=', 1));
  absl::string_view key = pair.first;
  int32_t priority = 0;
  if (key == "priority" && absl::SimpleAtoi(pair.second, &priority)) {
    request.set_priority(priority);
  } else if (absl::ConsumePrefix(&key, "labels.") && !key.empty() && change != pair.first) {
    if (pair.second.empty())
      request.add_remove_labels(std::string(key));
    else
      (*request.mutable_labels())[std::string(key)] = pair.second;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(change, ": write priority=N, labels.KEY=VALUE or labels.KEY="));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> UpdateJob(const CommandLine& line, Terminal& terminal) {
  v1::UpdateJobRequest request;
  request.set_id(line.job);
  for (const std::string& change : line.overrides) RETURN_IF_ERROR(AddChange(change, request));
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&Stub::UpdateJob, request));
  if (line.output == Output::kJson)
    terminal.out << JsonText(JobToJson(job));
  else
    terminal.out << job.id() << " is changed\n";
  return kExitOk;
}

absl::StatusOr<int> RerunJobs(const CommandLine& line, Terminal& terminal) {
  const auto ask = [](Connection& connection, const std::string& id) {
    v1::RerunJobRequest request;
    request.set_id(id);
    request.set_request_id(NewRequestId());
    return connection.Call(&Stub::RerunJob, request);
  };
  return ForEachJob(line, terminal, ask, [](const v1::Job& job) { return job.id(); });
}

absl::StatusOr<int> ExtendJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::ExtendJobRequest request;
  request.set_id(line.job);
  request.set_steps(line.steps);
  request.set_request_id(NewRequestId());
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&Stub::ExtendJob, request));
  if (line.output == Output::kJson)
    terminal.out << JsonText(JobToJson(job));
  else
    terminal.out << job.id() << std::endl;
  return kExitOk;
}

absl::StatusOr<int> DeleteJobs(const CommandLine& line, Terminal& terminal) {
  const auto ask = [](Connection& connection, const std::string& id) {
    v1::DeleteJobRequest request;
    request.set_id(id);
    return connection.Call(&Stub::DeleteJob, request);
  };
  return ForEachJob(line, terminal, ask,
                    [](const v1::Job& job) { return absl::StrCat(job.id(), " is deleted"); });
}

}  // namespace snug::client
