// logs: the worker's own words, byte for byte. With --follow it outlives a restart of the daemon:
// the log is sent from its beginning again, and what was printed is left out.
#include <algorithm>

#include "client/commands.h"
#include "client/json.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::Duration kReconnectFor = absl::Minutes(10);

class LogPrinter {
 public:
  LogPrinter(Connection& connection, const CommandLine& line, Terminal& terminal)
      : connection_(connection), line_(line), terminal_(terminal) {
    request_.set_id(line.job);
    request_.set_follow(line.follow);
  }

  absl::StatusOr<int> Run() {
    grpc::Status status = OneStream();
    while (IsLost(status) && backoff_.Wait()) status = OneStream();
    if (!status.ok()) return ToStatus(status);
    return kExitOk;
  }

 private:
  grpc::Status OneStream() {
    grpc::ClientContext context;
    const auto reader = connection_.stub().GetJobLogs(&context, request_);
    v1::LogChunk chunk;
    size_t offset = 0;  // In the log, of the chunk.
    while (reader->Read(&chunk)) {
      backoff_.Reset();
      const size_t skip = std::min(chunk.text().size(), printed_ > offset ? printed_ - offset : 0);
      Print(chunk.text().substr(skip));
      offset += chunk.text().size();
      printed_ = std::max(printed_, offset);
    }
    return reader->Finish();
  }

  void Print(const std::string& text) {
    if (text.empty()) return;
    if (line_.output == Output::kJson) {
      terminal_.out << JsonLine(Json::object({{"log", text}})) << std::flush;
    } else {
      terminal_.out << text << std::flush;
    }
  }

  Connection& connection_;
  const CommandLine& line_;
  Terminal& terminal_;
  Backoff backoff_{kReconnectFor};
  v1::GetJobLogsRequest request_;
  size_t printed_ = 0;
};

}  // namespace

absl::StatusOr<int> PrintLogs(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  return LogPrinter(connection, line, terminal).Run();
}

}  // namespace snug::client
