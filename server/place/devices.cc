#include "server/place/devices.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/place/device_kinds.h"

namespace snug::server {
namespace {

// "4 GiB (4294967296 bytes)"
std::string Exactly(int64_t bytes) {
  return absl::StrCat(FormatBytes(bytes), " (", bytes, " bytes)");
}

absl::Status At(const std::string& field, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(field, ": ", status.message()));
}

// The number behind "cpu:" or "gpu:"; -1: no such name. One spelling of each: no "gpu:00".
int NumberOf(const std::string& name) {
  int number = 0;
  const bool known = absl::StartsWith(name, "cpu:") || absl::StartsWith(name, "gpu:");
  if (!known || !absl::SimpleAtoi(name.substr(4), &number) || number < 0) return -1;
  return absl::StrCat(name.substr(0, 4), number) == name ? number : -1;
}

absl::StatusOr<Gpu> FindGpu(int index, const Gpus& gpus) {
  if (!gpus.ok()) return gpus.status();
  const size_t count = gpus->size();
  if (static_cast<size_t>(index) < count) {
    const Gpu& gpu = (*gpus)[static_cast<size_t>(index)];
    if (!gpu.trouble.ok()) return gpu.trouble;
    return gpu;
  }
  if (count == 0) return absl::InvalidArgumentError("this machine has no GPU");
  return absl::InvalidArgumentError(absl::StrCat(
      "this machine has ", count, count == 1 ? " GPU" : " GPUs", ", the last is gpu:", count - 1));
}

absl::StatusOr<int64_t> GivenCapacity(const v1::DeviceConfig& given, const Device& device) {
  ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes(given.capacity()));
  if (bytes < 1) return absl::InvalidArgumentError(absl::StrCat(device.name, " has no bytes"));
  if (bytes > device.total_bytes)
    return absl::InvalidArgumentError(absl::StrCat(Exactly(bytes), " is more than ", device.name,
                                                   " has: ", device.model, ", ",
                                                   Exactly(device.total_bytes)));
  return bytes;
}

absl::StatusOr<int64_t> DefaultCapacity(const Device& device, const Host& host) {
  if (!device.is_gpu()) return host.memory_bytes / 2;
  if (!device.gpu.trouble.ok()) return host.known.at(device.name).capacity_bytes;
  const int64_t bytes = device.gpu.free_bytes - kGpuReserveBytes;
  if (bytes > 0) return bytes;
  return absl::FailedPreconditionError(
      absl::StrCat("none is given, and of ", device.name, " (", device.model, ") only ",
                   Exactly(device.gpu.free_bytes), " are free, of which ",
                   Exactly(kGpuReserveBytes), " stay so"));
}

// As it is; or as it was, with what is wrong with it now.
absl::StatusOr<Gpu> GpuOf(const std::string& name, const Host& host) {
  absl::StatusOr<Gpu> found = FindGpu(NumberOf(name), host.gpus);
  const auto known = host.known.find(name);
  if (found.ok() || known == host.known.end()) return found;
  Gpu gpu = known->second.gpu;
  gpu.index = NumberOf(name);
  gpu.trouble = found.status();
  return gpu;
}

// Everything but its capacity.
absl::StatusOr<Device> Described(const v1::DeviceConfig& given, const Host& host) {
  Device device{.name = given.name(),
                .threads = given.threads() > 0 ? given.threads() : host.cores,
                .model = host.processor,
                .total_bytes = host.memory_bytes,
                .threads_per_job = given.threads_per_job()};
  if (!device.is_gpu()) return device;
  absl::StatusOr<Gpu> gpu = GpuOf(given.name(), host);
  if (!gpu.ok()) return At(device.name, gpu.status());
  device.gpu = *std::move(gpu);
  device.model = device.gpu.model;
  device.total_bytes = device.gpu.total_bytes;
  return device;
}

// What was gpu:1 may be counted as gpu:0 now: then gpu:1 is a name without a GPU.
void ForgetMoved(std::vector<Device>& devices) {
  for (Device& device : devices)
    for (const Device& other : devices)
      if (!device.gpu.trouble.ok() && other.gpu.trouble.ok() && other.gpu.uuid == device.gpu.uuid)
        device.gpu.uuid.clear();
}

// Devices of the CPU share the machine's memory.
absl::Status CheckSum(const std::vector<Device>& devices, const Host& host) {
  int64_t left = host.memory_bytes;
  for (const Device& device : devices) {
    if (device.is_gpu()) continue;
    if (device.capacity_bytes > left)
      return absl::InvalidArgumentError(
          absl::StrCat("devices: the CPU's have more bytes together than this machine: ",
                       Exactly(host.memory_bytes)));
    left -= device.capacity_bytes;
  }
  return absl::OkStatus();
}

// That the devices of the CPU leave.
int64_t MemoryBeside(const std::vector<Device>& devices, const Host& host) {
  int64_t left = host.memory_bytes;
  for (const Device& device : devices)
    if (!device.is_gpu()) left -= device.capacity_bytes;
  return left;
}

absl::Status CheckThreadsPerJob(const v1::DeviceConfig& given, const std::string& field) {
  const int threads = given.threads_per_job();
  if (threads < 0)
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".threads_per_job: ", threads, " is below 0"));
  if (threads > 0 && absl::StartsWith(given.name(), "gpu:"))
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".threads_per_job: of cpu:N alone; those of a GPU's workers are not divided"));
  if (threads > given.threads() && given.threads() > 0)
    return absl::InvalidArgumentError(absl::StrCat(field, ".threads_per_job: ", threads,
                                                   " is more than the ", given.threads(),
                                                   " threads of the device"));
  return absl::OkStatus();
}

absl::StatusOr<Device> DeviceOf(const v1::DeviceConfig& given, const std::string& field,
                                const Host& host) {
  if (NumberOf(given.name()) < 0)
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".name: \"", given.name(),
                     "\" is no device: they are cpu:0, cpu:1, ..., gpu:0, gpu:1, ..."));
  if (given.threads() < 0)
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".threads: ", given.threads(), " is below 0"));
  RETURN_IF_ERROR(CheckThreadsPerJob(given, field));
  absl::StatusOr<Device> device = Described(given, host);
  if (!device.ok()) return At(field + ".name", device.status());
  const absl::StatusOr<int64_t> capacity =
      given.capacity().empty() ? DefaultCapacity(*device, host) : GivenCapacity(given, *device);
  if (!capacity.ok()) return At(field + ".capacity", capacity.status());
  device->capacity_bytes = *capacity;
  return device;
}

}  // namespace

bool NamesGpu(const v1::DaemonConfig& config) {
  return std::any_of(
      config.devices().begin(), config.devices().end(),
      [](const v1::DeviceConfig& device) { return absl::StartsWith(device.name(), "gpu:"); });
}

absl::StatusOr<std::vector<Device>> DevicesOf(const v1::DaemonConfig& config, const Host& host) {
  v1::DeviceConfig standard;
  standard.set_name("cpu:0");
  if (config.devices_size() > kMaxDevices)
    return absl::InvalidArgumentError(absl::StrCat("devices: ", config.devices_size(),
                                                   " are named; at most ", kMaxDevices, " can be"));
  const int most = config.max_jobs_per_device();
  if (most < 0 || most > kMaxJobsPerDevice)
    return absl::InvalidArgumentError(
        absl::StrCat("max_jobs_per_device: ", most, " is outside 1 to ", kMaxJobsPerDevice));
  std::vector<Device> devices;
  std::map<std::string, std::string> seen;  // Name -> field.
  for (int i = 0; i < std::max(1, config.devices_size()); ++i) {
    const v1::DeviceConfig& given = config.devices_size() == 0 ? standard : config.devices(i);
    const std::string field = absl::StrCat("devices[", i, "]");
    if (const auto [twin, fresh] = seen.emplace(given.name(), field); !fresh)
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".name: ", given.name(), " is ", twin->second, " already"));
    ASSIGN_OR_RETURN(Device device, DeviceOf(given, field, host));
    if (config.max_jobs_per_device() > 0) device.max_jobs = config.max_jobs_per_device();
    devices.push_back(std::move(device));
  }
  RETURN_IF_ERROR(CheckSum(devices, host));
  ForgetMoved(devices);
  return devices;
}

std::vector<int> ThreadShares(const Device& device) {
  if (device.threads_per_job > 0) return {device.threads_per_job};
  std::vector<int> shares = {device.threads};
  while (!device.is_gpu() && shares.back() > 1 && shares.size() < kMaxThreadShares)
    shares.push_back(shares.back() / 2);
  return shares;
}

PlanMachine MachineOf(const Device& device, int threads) {
  return {.threads = threads,
          .gpu = device.is_gpu(),
          .context_bytes = device.context_bytes,
          .rates = RatesOf(device),
          .host_bytes = device.is_gpu() ? device.host_bytes : 0};
}

PlanMachine MachineOf(const Device& device) {
  return MachineOf(device, ThreadShares(device).front());
}

absl::StatusOr<int64_t> HostBudgetOf(const v1::DaemonConfig& config,
                                     const std::vector<Device>& devices, const Host& host) {
  const int64_t left = MemoryBeside(devices, host);
  if (config.host_memory().empty())
    return std::max<int64_t>(0, left - host.memory_bytes / kShareKeptOfMemory);
  const absl::StatusOr<int64_t> given = ParseBytes(config.host_memory());
  if (!given.ok())
    return absl::InvalidArgumentError(absl::StrCat("host_memory: ", given.status().message()));
  if (*given > left)
    return absl::InvalidArgumentError(absl::StrCat("host_memory: ", Exactly(*given),
                                                   " are more than the devices leave of this ",
                                                   "machine's memory: ", Exactly(left)));
  return *given;
}

std::vector<DeviceState> StatesOf(const std::vector<Device>& devices) {
  std::vector<DeviceState> states;
  for (const Device& device : devices)
    states.push_back({.name = device.name,
                      .gpu = device.is_gpu(),
                      .capacity_bytes = device.capacity_bytes,
                      .max_jobs = device.max_jobs,
                      .shares = ThreadShares(device)});
  return states;
}

}  // namespace snug::server
