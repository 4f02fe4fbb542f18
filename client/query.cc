// list, get, cancel, pause, squeeze: one question, one answer.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/each_job.h"
#include "client/job_list.h"
#include "client/job_text.h"
#include "client/json.h"
#include "client/picture.h"
#include "proto/snug/bytes.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr size_t kPageSize = 1000;  // The server ends a page before it is too large to send.

using Stub = v1::FineTuning::Stub;

void PrintOne(const v1::Job& job, const CommandLine& line, Terminal& terminal) {
  if (line.output == Output::kJson) {
    terminal.out << JsonText(JobToJson(job));
  } else {
    PrintJob(job, absl::LocalTimeZone(), terminal.out);
  }
}

absl::StatusOr<v1::ListJobsRequest> RequestOf(const CommandLine& line) {
  v1::ListJobsRequest request;
  request.set_all(line.all);
  request.set_display_name(line.name);
  for (const std::string& name : line.states) {
    v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
    if (ParseEnumWord(name, &state)) request.add_states(state);
  }
  for (const std::string& label : line.labels) {
    const std::vector<std::string> parts = absl::StrSplit(label, absl::MaxSplits('=', 1));
    if (parts.size() < 2 || parts.front().empty())
      return absl::InvalidArgumentError(absl::StrCat("--label ", label, ": write KEY=VALUE"));
    (*request.mutable_labels())[parts.front()] = parts.back();
  }
  if (line.sort == "-created") request.set_order_by("create_time");
  const std::string every_field(1, '*');
  if (line.output == Output::kJson) request.mutable_read_mask()->add_paths(every_field);
  return request;
}

// The server knows orders by time; others are made here, of the whole list.
bool SortsHere(const CommandLine& line) {
  return !line.sort.empty() && line.sort != "created" && line.sort != "-created";
}

void SortBy(std::string field, std::vector<v1::Job>& jobs) {
  const bool reversed = field.front() == '-';
  if (reversed) field.erase(0, 1);
  const auto before = [&](const v1::Job& a, const v1::Job& b) {
    if (field == "name") return a.display_name() < b.display_name();
    if (field == "state") return a.state() < b.state();
    return a.priority() > b.priority();  // Who comes first is first.
  };
  std::stable_sort(jobs.begin(), jobs.end(), [&](const v1::Job& a, const v1::Job& b) {
    return reversed ? before(b, a) : before(a, b);
  });
}

absl::StatusOr<std::vector<v1::Job>> AllPages(Connection& connection, const CommandLine& line) {
  ASSIGN_OR_RETURN(v1::ListJobsRequest request, RequestOf(line));
  const size_t limit = line.limit == 0 ? SIZE_MAX : static_cast<size_t>(line.limit);
  const size_t wanted = SortsHere(line) ? SIZE_MAX : limit;
  std::vector<v1::Job> jobs;
  do {
    request.set_page_size(static_cast<int>(std::min<size_t>(kPageSize, wanted - jobs.size())));
    ASSIGN_OR_RETURN(v1::ListJobsResponse page, connection.Call(&Stub::ListJobs, request));
    for (v1::Job& job : *page.mutable_jobs()) jobs.push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && jobs.size() < wanted);
  if (SortsHere(line)) SortBy(line.sort, jobs);
  if (jobs.size() > limit) jobs.resize(limit);
  return jobs;
}

// Says the state that each job is in then.
template <typename Request, typename Method>
absl::StatusOr<int> AskForEach(Method method, const CommandLine& line, Terminal& terminal,
                               Request request = {}) {
  const auto ask = [&](Connection& connection, const std::string& id) {
    request.set_id(id);
    return connection.Call(method, request);
  };
  return ForEachJob(line, terminal, ask, [](const v1::Job& job) {
    return absl::StrCat(job.id(), " ", StateName(job.state()));
  });
}

// What the job has been told, or that it keeps its plan.
void PrintPlanOrder(const v1::Job& job, const CommandLine& line, Terminal& terminal) {
  if (line.output == Output::kJson) return PrintOne(job, line, terminal);
  const v1::JobMemory& memory = job.memory();
  terminal.out << job.id() << " " << memory.plan() << ", " << FormatBytes(memory.budget_bytes());
  if (job.plan_changes().has_pending()) {
    const v1::PlanOrder& order = job.plan_changes().pending();
    terminal.out << " -> " << order.plan().name() << ", " << FormatBytes(order.bytes());
  }
  terminal.out << "\n";
}

}  // namespace

absl::StatusOr<int> ListJobs(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, AllPages(connection, line));
  const bool filtered = !line.states.empty() || !line.labels.empty() || !line.name.empty();
  if (line.output == Output::kJson) {
    terminal.out << JsonText(JobsToJson(jobs));
  } else if (jobs.empty()) {
    terminal.out << (filtered   ? "no such jobs\n"
                     : line.all ? "no jobs\n"
                                : "no jobs that have not ended; snug list --all shows all\n");
  } else {
    const int columns = terminal.is_tty ? TextOptionsFor(terminal).columns : 0;
    PrintJobs(jobs, {.now = absl::Now(), .columns = columns}, terminal.out);
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

absl::StatusOr<int> CancelJob(const CommandLine& line, Terminal& terminal) {
  v1::CancelJobRequest request;
  request.set_keep(line.keep);
  return AskForEach(&Stub::CancelJob, line, terminal, request);
}

absl::StatusOr<int> PauseJob(const CommandLine& line, Terminal& terminal) {
  return AskForEach<v1::PauseJobRequest>(&Stub::PauseJob, line, terminal);
}

absl::StatusOr<int> ResumeJob(const CommandLine& line, Terminal& terminal) {
  return AskForEach<v1::ResumeJobRequest>(&Stub::ResumeJob, line, terminal);
}

absl::StatusOr<int> SqueezeJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::SqueezeJobRequest request;
  request.set_id(line.job);
  ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(line.bytes));
  request.set_bytes(bytes);
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&Stub::SqueezeJob, request));
  PrintPlanOrder(job, line, terminal);
  return kExitOk;
}

absl::StatusOr<int> RelaxJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::RelaxJobRequest request;
  request.set_id(line.job);
  ASSIGN_OR_RETURN(const v1::Job job, connection.Call(&Stub::RelaxJob, request));
  PrintPlanOrder(job, line, terminal);
  return kExitOk;
}

}  // namespace snug::client
