// list, get, cancel: one question, one answer.
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/job_text.h"
#include "client/json.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr int kPageSize =
    200;  // Jobs; with their plans and histograms well below a message's limit.

using Stub = v1::FineTuning::Stub;

void PrintOne(const v1::Job& job, const CommandLine& line, Terminal& terminal) {
  if (line.output == Output::kJson) {
    terminal.out << JsonText(JobToJson(job));
  } else {
    PrintJob(job, absl::LocalTimeZone(), terminal.out);
  }
}

absl::StatusOr<std::vector<v1::Job>> AllPages(Connection& connection, bool all) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  request.set_page_size(kPageSize);
  request.set_all(all);
  do {
    ASSIGN_OR_RETURN(v1::ListJobsResponse page, connection.Call(&Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return jobs;
}

}  // namespace

absl::StatusOr<int> ListJobs(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, AllPages(connection, line.all));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(JobsToJson(jobs));
  } else if (jobs.empty()) {
    terminal.out << (line.all ? "no jobs\n"
                              : "no jobs that have not ended; snug list --all shows all\n");
  } else {
    PrintJobs(jobs, absl::LocalTimeZone(), terminal.out);
  }
  return kExitOk;
}

absl::StatusOr<int> GetJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::GetJobRequest request;
  request.set_id(line.job);
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&Stub::GetJob, request));
  PrintOne(job, line, terminal);
  return kExitOk;
}

// All are asked for, also behind one that cannot be cancelled; the first error is the command's.
absl::StatusOr<int> CancelJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  absl::Status first;
  for (const std::string& id : line.jobs) {
    v1::CancelJobRequest request;
    request.set_id(id);
    const absl::StatusOr<v1::Job> job = connection.Call(&Stub::CancelJob, request);
    if (!job.ok()) {
      if (!first.ok() && line.output == Output::kTable)
        terminal.err << "snug: " << job.status().message() << std::endl;
      first.Update(job.status());
    } else if (line.output == Output::kJson) {
      PrintOne(*job, line, terminal);
    } else {
      terminal.out << job->id() << " " << StateName(job->state()) << "\n";
    }
  }
  RETURN_IF_ERROR(first);
  return kExitOk;
}

}  // namespace snug::client
