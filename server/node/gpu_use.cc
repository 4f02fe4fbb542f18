#include "server/node/gpu_use.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/node/session.h"

namespace snug::server {
namespace {

// Its own trouble where it has some; where one GPU does not even say which it is, that one's.
absl::StatusOr<GpuReading> FindReading(const std::string& uuid,
                                       const std::vector<GpuReading>& readings) {
  absl::Status missing = absl::NotFoundError(absl::StrCat(uuid, " is not on this machine now"));
  for (const GpuReading& reading : readings) {
    if (reading.gpu.uuid.empty()) missing = reading.gpu.trouble;
    if (reading.gpu.uuid != uuid) continue;
    if (!reading.gpu.trouble.ok()) return reading.gpu.trouble;
    return reading;
  }
  return missing;
}

// What jobs were planned with must still hold.
absl::Status CheckSame(const Device& device, const Gpu& now) {
  if (device.context_bytes == 0)
    return absl::FailedPreconditionError(
        "it could not be used when the daemon started, and what a worker takes of it is not known: "
        "restart snugd");
  if (now.driver != device.gpu.driver)
    return absl::FailedPreconditionError(absl::StrCat("its driver is ", now.driver,
                                                      " now, and what a worker takes was measured "
                                                      "with ",
                                                      device.gpu.driver, ": restart snugd"));
  if (now.total_bytes >= device.capacity_bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("it has ", FormatBytes(now.total_bytes), " (", now.total_bytes,
                   " bytes) now, less than its capacity of ", FormatBytes(device.capacity_bytes),
                   " (", device.capacity_bytes, " bytes): restart snugd with less"));
}

}  // namespace

int64_t GpuUse::ours() const {
  int64_t bytes = 0;
  for (const auto& [attempt, of_it] : attempt_bytes) bytes += of_it;
  return bytes;
}

GpuUse Attribute(const GpuReading& reading, const std::string& state_dir) {
  GpuUse use{.complete = reading.processes.has_value(), .total_bytes = reading.gpu.total_bytes};
  for (const GpuProcess& process : reading.processes.value_or(std::vector<GpuProcess>())) {
    const std::string attempt = AttemptOf(process.pid).value_or("");
    if (!absl::StartsWith(attempt, state_dir + "/")) continue;
    use.complete &= process.bytes.has_value();
    if (process.bytes) use.attempt_bytes[attempt] += *process.bytes;
  }
  // A process may have grown between the two answers of the driver.
  use.others_bytes = std::max<int64_t>(0, use.total_bytes - reading.gpu.free_bytes - use.ours());
  return use;
}

absl::StatusOr<GpuUse> UseOf(const Device& device, const GpuReadings& readings,
                             const std::string& state_dir) {
  RETURN_IF_ERROR(readings.status());
  if (device.gpu.uuid.empty()) return device.gpu.trouble;
  ASSIGN_OR_RETURN(const GpuReading reading, FindReading(device.gpu.uuid, *readings));
  RETURN_IF_ERROR(CheckSame(device, reading.gpu));
  return Attribute(reading, state_dir);
}

Gpus GpusForUs(const GpuReadings& readings, const std::string& state_dir) {
  RETURN_IF_ERROR(readings.status());
  std::vector<Gpu> gpus;
  for (const GpuReading& reading : *readings) {
    Gpu& gpu = gpus.emplace_back(reading.gpu);
    gpu.free_bytes =
        std::min(gpu.total_bytes, gpu.free_bytes + Attribute(reading, state_dir).ours());
  }
  return gpus;
}

GpuReadings GpuWatch::Look() {
  if (driver_ == nullptr) {
    ASSIGN_OR_RETURN(driver_, GpuDriver::Open(library_));
  }
  GpuReadings readings = driver_->ReadGpus();
  bool failed = !readings.ok();
  for (const GpuReading& reading : readings.value_or(std::vector<GpuReading>()))
    failed |= absl::IsUnavailable(reading.gpu.trouble);
  if (failed) driver_.reset();
  return readings;
}

}  // namespace snug::server
