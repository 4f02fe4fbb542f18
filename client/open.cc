// open: a link to the status page, which lets one browser after the other in for some hours.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/commands.h"
#include "client/json.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::string_view kHttps = "https://";
constexpr const char* kLoopback = "http://127.0.0.1:";

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// Where a browser finds the page: by the name that this command has the daemon by where it is
// served over TLS, else on loopback of the daemon's machine.
absl::StatusOr<std::string> PageOf(const v1::ServerInfo& server, absl::string_view name) {
  if (absl::ConsumePrefix(&name, kHttps) && server.http_addresses_size() > 0)
    return absl::StrCat(kHttps, name.substr(0, name.rfind(':')), ":",
                        PortOf(server.http_addresses(0)));
  if (server.metrics_port() != 0) return absl::StrCat(kLoopback, server.metrics_port());
  return absl::FailedPreconditionError(
      "the daemon serves no page: somebody had its port (--metrics-port) when it started");
}

}  // namespace

absl::StatusOr<int> OpenPage(const CommandLine& line, Terminal& terminal) {
  using google::protobuf::util::TimeUtil;
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(
      const v1::ServerInfo server,
      connection.Call(&v1::FineTuning::Stub::GetServerInfo, v1::GetServerInfoRequest()));
  ASSIGN_OR_RETURN(const std::string page, PageOf(server, line.server.name));
  ASSIGN_OR_RETURN(
      const v1::CreateSessionResponse session,
      connection.Call(&v1::FineTuning::Stub::CreateSession, v1::CreateSessionRequest()));
  const std::string url = absl::StrCat(page, "/?session=", session.secret());
  const std::string until = TimeUtil::ToString(session.expire_time());
  if (line.output == Output::kJson) {
    terminal.out << JsonText(Json::object({{"url", url}, {"expire_time", until}}));
    return kExitOk;
  }
  terminal.out << url << "\n";
  terminal.err << "Whoever has this link sees what you may see, until " << until << ".\n";
  if (absl::StartsWith(page, kLoopback))
    terminal.err << "It is an address of the daemon's machine; from another one:\n  ssh -L "
                 << server.metrics_port() << ":127.0.0.1:" << server.metrics_port() << " HOST\n";
  return kExitOk;
}

}  // namespace snug::client
