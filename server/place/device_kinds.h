// Kinds of devices by name, for planning on a machine that is not here: what they have and how fast
// they are.
#ifndef SERVER_PLACE_DEVICE_KINDS_H_
#define SERVER_PLACE_DEVICE_KINDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/place/devices.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

struct DeviceKind {
  const char* name = "";   // h100
  const char* model = "";  // How the driver's name of such a GPU reads behind "NVIDIA ".
  int64_t total_bytes = 0;
  program::MachineRates rates = {};
};

// GPUs alone: a CPU's memory and speed are not in its name.
const std::vector<DeviceKind>& GpuKinds();

// What the node has measured of a device, and for the rest of a GPU the rates of its kind. What was
// measured in part alone of a CPU, or of a GPU of no known kind, is not used: rates that are true
// and rates that are not give no true ratio. MachineRates::head_rows is no rate, and used always.
program::MachineRates RatesOf(const Device& device);
bool IsMeasured(const Device& device);  // All of them.
// "measured": all of them; "kind": at least some are the kind's; "nominal".
const char* RatesSource(const Device& device);

// A device as the request describes it. What it does not say is as on this daemon's first device of
// that kind, or, without a kind, on `like`. Errors name the field and what is allowed.
absl::StatusOr<Device> GivenDevice(const v1::GivenMachine& given,
                                   const std::vector<Device>& devices, const Device& like);

}  // namespace snug::server

#endif  // SERVER_PLACE_DEVICE_KINDS_H_
