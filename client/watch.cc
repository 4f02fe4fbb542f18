// watch: a stream of snapshots until the job has ended. The stream breaks when the daemon restarts;
// the job does not, so it is opened again.
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands.h"
#include "client/interrupt.h"
#include "client/job_text.h"
#include "client/json.h"
#include "client/picture.h"
#include "client/progress.h"
#include "client/table.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::Duration kReconnectFor =
    absl::Minutes(10);        // An upgrade of the daemon, with a person in it.
constexpr int kCourse = 256;  // Losses of the steps before, more than a line shows.

int ExitCode(v1::Job::State state) {
  if (state == v1::Job::STATE_SUCCEEDED) return kExitOk;
  return state == v1::Job::STATE_CANCELLED ? kExitCancelled : kExitError;
}

class Watcher {
 public:
  Watcher(Connection& connection, const CommandLine& line, Terminal& terminal)
      : connection_(connection),
        line_(line),
        terminal_(terminal),
        options_(TextOptionsFor(terminal)),
        printer_(terminal, options_) {
    request_.set_id(line.job);
  }

  absl::StatusOr<int> Run() {
    const std::string job = absl::StrCat(" ", line_.job);
    const InterruptNote note(absl::StrCat("\nsnug: the job goes on. Follow it: snug watch", job,
                                          "; stop it and keep what it made: snug cancel", job,
                                          " --keep; let it wait: snug pause", job, "\n"));
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
      request_.set_id(NameOf(job));  // A beginning that was unambiguous may not stay so.
      Show();
    }
    return reader->Finish();
  }

  void Show() {
    if (line_.output == Output::kJson) {
      terminal_.out << JsonLine(JobToJson(job_)) << std::flush;
    } else {
      WarnOnce();
      if (terminal_.is_tty) LookBackOnce();
      printer_.Show(job_, absl::Now());
    }
  }

  // A watch that begins in the middle shows how it came there. Without an answer it does not.
  void LookBackOnce() {
    if (looked_back_ || job_.progress().global_step() == 0) return;
    looked_back_ = true;
    v1::GetMetricHistoryRequest request;
    request.set_id(NameOf(job_));
    request.add_metrics("loss");
    request.set_max_points(kCourse);
    const auto history = connection_.Call(&v1::FineTuning::Stub::GetMetricHistory, request);
    if (!history.ok() || history->series().empty()) return;
    const auto& values = history->series(0).values();
    printer_.AddLosses({values.begin(), values.end()});
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
    if (line_.output == Output::kTable) PrintEnd(job_, terminal_, options_.colour);
    return ExitCode(job_.state());
  }

  Connection& connection_;
  const CommandLine& line_;
  Terminal& terminal_;
  const TextOptions options_;
  ProgressPrinter printer_;
  Backoff backoff_{kReconnectFor};
  bool warned_ = false, looked_back_ = false;
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
