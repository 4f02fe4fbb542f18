// devices: what jobs can run on, and whose its memory is. drain, undrain: keeping jobs off one.
#include "client/commands.h"
#include "client/json.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

// Nothing where nobody measures it.
std::string IfKnown(bool known, int64_t bytes) { return known ? FormatBytes(bytes) : "-"; }

// Once for all jobs over the same base.
void PrintShared(const v1::Device& device, std::ostream& out) {
  for (const v1::WeightsInUse& weights : device.shared_weights())
    out << Printable(device.name()) << ": of what is reserved, " << FormatBytes(weights.bytes())
        << " are weights that " << weights.jobs() << (weights.jobs() == 1 ? " job" : " jobs")
        << (weights.jobs() == 1 ? " may share\n" : " share\n");
}

void PrintDevices(const v1::ServerInfo& server, std::ostream& out) {
  Table table({"DEVICE", "MODEL", ">TOTAL", ">CAPACITY", ">RESERVED", ">MEASURED", ">OTHERS"});
  for (const v1::Device& device : server.devices())
    table.AddRow({device.name(), device.model(), FormatBytes(device.total_bytes()),
                  FormatBytes(device.capacity_bytes()), FormatBytes(device.reserved_bytes()),
                  IfKnown(device.has_measured_bytes(), device.measured_bytes()),
                  IfKnown(device.has_others_bytes(), device.others_bytes())});
  table.Print(out);
  for (const v1::Device& device : server.devices()) PrintShared(device, out);
  for (const v1::Device& device : server.devices())
    if (!device.trouble().empty())
      out << Printable(device.name()) << ": no job is placed there: " << Printable(device.trouble())
          << "\n";
  for (const v1::Device& device : server.devices())
    if (device.drained())
      out << Printable(device.name()) << ": no job is placed there: it is drained (snug undrain "
          << Printable(device.name()) << ")\n";
}

// How many run there, so that one sees when the device is free.
void PrintDrained(const v1::Device& device, const CommandLine& line, Terminal& terminal) {
  if (line.output == Output::kJson) {
    terminal.out << JsonText(ToJson(device));
    return;
  }
  const int jobs = device.reservations_size();
  terminal.out << Printable(device.name()) << (device.drained() ? " drained, " : " in use, ")
               << jobs << (jobs == 1 ? " job runs" : " jobs run") << " there\n";
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

absl::StatusOr<int> DrainDevice(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::DrainDeviceRequest request;
  request.set_device(line.device);
  request.set_move(line.move);
  ASSIGN_OR_RETURN(const v1::Device device,
                   connection.Call(&v1::FineTuning::Stub::DrainDevice, request));
  PrintDrained(device, line, terminal);
  return kExitOk;
}

absl::StatusOr<int> UndrainDevice(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  v1::UndrainDeviceRequest request;
  request.set_device(line.device);
  ASSIGN_OR_RETURN(const v1::Device device,
                   connection.Call(&v1::FineTuning::Stub::UndrainDevice, request));
  PrintDrained(device, line, terminal);
  return kExitOk;
}

}  // namespace snug::client
