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

// The rates of a device that the node has measured; of a GPU that it has not, those of its kind.
program::MachineRates RatesOf(const Device& device);
const char* RatesSource(const Device& device);  // "measured", "kind" or "nominal".

// A device as the request describes it. What it does not say is as on this daemon's first device of
// that kind, or, without a kind, on `like`. Errors name the field and what is allowed.
absl::StatusOr<Device> GivenDevice(const v1::GivenMachine& given,
                                   const std::vector<Device>& devices, const Device& like);

}  // namespace snug::server

#endif  // SERVER_PLACE_DEVICE_KINDS_H_
