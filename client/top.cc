// top: devices, their jobs and the queue, asked for again every second until somebody leaves.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/json.h"
#include "client/screen.h"
#include "client/table.h"
#include "client/top_screen.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::Duration kRefresh = absl::Seconds(1);
// Of one question: a daemon that is away is said to be, and q is heard.
constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr int kMaxJobs = 1000;  // Of those that run, and of those that wait.

using Stub = v1::FineTuning::Stub;

// Once, without waiting for a daemon that is away.
template <class Request, class Reply>
absl::Status Ask(Connection& connection,
                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                 const Request& request, Reply* reply) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  const grpc::Status status = (connection.stub().*method)(&context, request, reply);
  return status.ok() ? absl::OkStatus() : ToStatus(status);
}

absl::Status AskJobs(Connection& connection, std::vector<v1::Job::State> states,
                     std::vector<v1::Job>* jobs, bool* more) {
  v1::ListJobsRequest request;
  for (v1::Job::State state : states) request.add_states(state);
  request.set_order_by("create_time");
  jobs->clear();
  do {
    request.set_page_size(kMaxJobs - static_cast<int>(jobs->size()));
    v1::ListJobsResponse page;
    RETURN_IF_ERROR(Ask(connection, &Stub::ListJobs, request, &page));
    for (v1::Job& job : *page.mutable_jobs()) jobs->push_back(std::move(job));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && static_cast<int>(jobs->size()) < kMaxJobs);
  *more = !request.page_token().empty();
  return absl::OkStatus();
}

absl::Status Refresh(Connection& connection, TopView* view) {
  bool more_running = false;
  RETURN_IF_ERROR(Ask(connection, &Stub::GetServerInfo, v1::GetServerInfoRequest(), &view->server));
  RETURN_IF_ERROR(AskJobs(connection,
                          {v1::Job::STATE_STARTING, v1::Job::STATE_RUNNING, v1::Job::STATE_PAUSING,
                           v1::Job::STATE_CANCELLING},
                          &view->running, &more_running));
  RETURN_IF_ERROR(AskJobs(connection, {v1::Job::STATE_QUEUED, v1::Job::STATE_PREPARING},
                          &view->waiting, &view->more_waiting));
  std::stable_sort(view->waiting.begin(), view->waiting.end(),
                   [](const v1::Job& a, const v1::Job& b) { return a.priority() > b.priority(); });
  return absl::OkStatus();
}

int Print(const TopView& view, const CommandLine& line, Terminal& terminal) {
  if (line.output == Output::kJson) {
    terminal.out << JsonText(Json::object({{"devices", ToJson(view.server)["devices"]},
                                           {"running", JobsToJson(view.running)["jobs"]},
                                           {"waiting", JobsToJson(view.waiting)["jobs"]}}));
    return kExitOk;
  }
  ScreenSize size = TerminalSize(terminal);
  size.rows = 0;
  for (const std::string& text : TopLines(view, size)) terminal.out << text << "\n";
  return kExitOk;
}

// What was last known stays, under a line that says that it is old.
std::vector<std::string> LinesOf(const TopView& view, const absl::Status& status,
                                 const Terminal& terminal) {
  ScreenSize size = TerminalSize(terminal);
  size.rows = std::max(1, size.rows - 1);
  std::vector<std::string> lines = TopLines(view, size);
  const std::string clock = absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone());
  std::string head = status.ok()
                         ? absl::StrCat("snugd ", view.server.version(), "  ", clock, "  q leaves")
                         : absl::StrCat(clock, "  ", Printable(status.message()));
  lines.insert(lines.begin(), head.substr(0, static_cast<size_t>(size.columns)));
  return lines;
}

int Follow(Connection& connection, Screen& screen, Terminal& terminal) {
  TopView view;
  Screen::Event event = Screen::Event::kTime;
  absl::Status status;
  absl::Time next = absl::InfinitePast();
  while (event != Screen::Event::kLeave) {
    if (absl::Now() >= next) {
      TopView fresh;
      status = Refresh(connection, &fresh);
      if (status.ok()) view = std::move(fresh);
      next = absl::Now() + kRefresh;
    }
    screen.Draw(LinesOf(view, status, terminal));
    event = screen.Wait(std::max(absl::ZeroDuration(), next - absl::Now()));
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> ShowTop(const CommandLine& line, Terminal& terminal) {
  if (line.once || !terminal.is_tty || line.output == Output::kJson) {
    ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
    TopView view;
    RETURN_IF_ERROR(Refresh(connection, &view));
    return Print(view, line, terminal);
  }
  std::optional<Screen> screen(std::in_place, terminal);
  absl::StatusOr<Connection> connection = Connection::Open(line.server);
  if (!connection.ok()) {
    screen.reset();  // The error is to be read where the user was.
    return connection.status();
  }
  return Follow(*connection, *screen, terminal);
}

}  // namespace snug::client
