// open: a link to the status page, which lets one browser after the other in for some hours.
#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/json.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"

namespace snug::client {

absl::StatusOr<int> OpenPage(const CommandLine& line, Terminal& terminal) {
  using google::protobuf::util::TimeUtil;
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(
      const v1::ServerInfo server,
      connection.Call(&v1::FineTuning::Stub::GetServerInfo, v1::GetServerInfoRequest()));
  if (server.metrics_port() == 0)
    return absl::FailedPreconditionError(
        "the daemon serves no page: somebody had its port (--metrics-port) when it started");
  ASSIGN_OR_RETURN(
      const v1::CreateSessionResponse session,
      connection.Call(&v1::FineTuning::Stub::CreateSession, v1::CreateSessionRequest()));
  const std::string url = absl::StrCat("http://127.0.0.1:", server.metrics_port(),
                                       "/?session=", session.secret());
  const std::string until = TimeUtil::ToString(session.expire_time());
  if (line.output == Output::kJson) {
    terminal.out << JsonText(Json::object({{"url", url}, {"expire_time", until}}));
    return kExitOk;
  }
  terminal.out << url << "\n";
  terminal.err << "Whoever has this link sees what you may see, until " << until
               << ". It is an address of the daemon's machine; from another one:\n"
               << "  ssh -L " << server.metrics_port() << ":127.0.0.1:" << server.metrics_port()
               << " HOST\n";
  return kExitOk;
}

}  // namespace snug::client
