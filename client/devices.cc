// devices: what jobs can run on, and whose its memory is.
#include "client/commands.h"
#include "client/json.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// Nothing where nobody measures it.
std::string IfKnown(bool known, int64_t bytes) { return known ? FormatBytes(bytes) : "-"; }

void PrintDevices(const v1::ServerInfo& server, std::ostream& out) {
  Table table({"DEVICE", "MODEL", ">TOTAL", ">CAPACITY", ">RESERVED", ">MEASURED", ">OTHERS"});
  for (const v1::Device& device : server.devices())
    table.AddRow({device.name(), device.model(), FormatBytes(device.total_bytes()),
                  FormatBytes(device.capacity_bytes()), FormatBytes(device.reserved_bytes()),
                  IfKnown(device.has_measured_bytes(), device.measured_bytes()),
                  IfKnown(device.has_others_bytes(), device.others_bytes())});
  table.Print(out);
  for (const v1::Device& device : server.devices())
    if (!device.trouble().empty())
      out << Printable(device.name()) << ": no job is placed there: " << Printable(device.trouble())
          << "\n";
}

}  // namespace

absl::StatusOr<int> ListDevices(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  ASSIGN_OR_RETURN(
      const v1::ServerInfo server,
      connection.Call(&v1::FineTuning::Stub::GetServerInfo, v1::GetServerInfoRequest()));
  if (line.output == Output::kJson) {
    terminal.out << JsonText(Json::object({{"devices", ToJson(server)["devices"]}}));
  } else {
    PrintDevices(server, terminal.out);
  }
  return kExitOk;
}

}  // namespace snug::client
