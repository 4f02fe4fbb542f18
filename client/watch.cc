// watch: a stream of snapshots until the job has ended. The stream breaks when the daemon restarts;
// the job does not, so it is opened again.
#include <sys/ioctl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/interrupt.h"
#include "client/job_text.h"
#include "client/json.h"
#include "client/progress.h"
#include "client/table.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::Duration kReconnectFor =
    absl::Minutes(10);  // An upgrade of the daemon, with a person in it.
constexpr int kDefaultColumns = 80;

int Columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                         : kDefaultColumns;
}

int ExitCode(v1::Job::State state) {
  if (state == v1::Job::SUCCEEDED) return kExitOk;
  return state == v1::Job::CANCELLED ? kExitCancelled : kExitError;
}

class Watcher {
 public:
  Watcher(Connection& connection, const CommandLine& line, Terminal& terminal)
      : connection_(connection), line_(line), terminal_(terminal), printer_(terminal, Columns()) {
    request_.set_id(line.job);
  }

  absl::StatusOr<int> Run() {
    const std::string job = absl::StrCat(" ", line_.job);
    const InterruptNote note(absl::StrCat("\nsnug: the job goes on. Follow it: snug watch", job,
                                          "; stop it: snug cancel", job, "\n"));
    while (true) {
      const grpc::Status status = OneStream();
      printer_.FinishLine();
      if (HasEnded(job_.state())) return End();
      // A stream that ends well before the job has is the daemon's way to bound its length.
      const bool lost = IsLost(status);
      if (!status.ok() && !lost) return ToStatus(status);
      if (lost && !backoff_.waited() && line_.output == Output::kTable) {
        terminal_.err << "snug: the daemon is away; the job goes on, waiting for the daemon"
                      << std::endl;
      }
      if (!backoff_.Wait()) return ToStatus(status);
    }
  }

 private:
  // Until the stream ends, for whatever reason.
  grpc::Status OneStream() {
    grpc::ClientContext context;
    const auto reader = connection_.stub().WatchJob(&context, request_);
    v1::Job job;
    while (reader->Read(&job)) {
      backoff_.Reset();
      job_ = job;
      request_.set_id(job.id());  // A beginning that was unambiguous may not stay so.
      Show();
    }
    return reader->Finish();
  }

  void Show() {
    if (line_.output == Output::kJson) {
      terminal_.out << JsonLine(JobToJson(job_)) << std::flush;
    } else {
      WarnOnce();
      printer_.Show(job_, absl::Now());
    }
  }

  // What was found in the dataset, as soon as it is prepared: there is still time to cancel.
  void WarnOnce() {
    if (warned_ || job_.dataset().rows() == 0) return;
    warned_ = true;
    if (job_.dataset().warnings().empty()) return;
    printer_.FinishLine();
    for (const std::string& warning : job_.dataset().warnings())
      terminal_.out << "warning    " << Printable(warning) << std::endl;
  }

  int End() {
    if (line_.output == Output::kTable) PrintEnd(job_, terminal_);
    return ExitCode(job_.state());
  }

  Connection& connection_;
  const CommandLine& line_;
  Terminal& terminal_;
  ProgressPrinter printer_;
  Backoff backoff_{kReconnectFor};
  bool warned_ = false;
  v1::WatchJobRequest request_;
  v1::Job job_;
};

}  // namespace

absl::StatusOr<int> Watch(Connection& connection, const CommandLine& line, Terminal& terminal) {
  return Watcher(connection, line, terminal).Run();
}

absl::StatusOr<int> WatchJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  return Watch(connection, line, terminal);
}

}  // namespace snug::client
