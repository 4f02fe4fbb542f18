// The devices that a configuration names, on what this machine has. Pure: what there is has been
// read before (host_memory.h, node/gpu_use.h).
#ifndef SERVER_PLACE_DEVICES_H_
#define SERVER_PLACE_DEVICES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "server/place/policy.h"
#include "server/plan/planner.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// A configuration has no more: each is planned for, shown and exported.
inline constexpr int kMaxDevices = 64;

// The whole down to a sixteenth: each of them is planned for.
inline constexpr size_t kMaxThreadShares = 5;

// What stays free of a GPU whose capacity is not given. Jobs bring their own context with them
// (their plans count it), so this is for what comes and goes beside them: one context of somebody
// else (0.4-0.7 GiB on an H100: a notebook, a profiler), and what the driver takes per process
// without saying so. Who knows the machine better gives the capacity.
inline constexpr int64_t kGpuReserveBytes = int64_t{1} << 30;

// Of the host's memory, where nobody says how much plans may use: stays with the daemon, the
// helpers and the page cache.
inline constexpr int64_t kShareKeptOfMemory = 16;

// A GPU as its driver describes it.
struct Gpu {
  int index = 0;      // In the driver's order, which is that of the PCI bus.
  std::string uuid;   // GPU-...: the same wherever it is plugged in.
  std::string model;  // NVIDIA H200
  std::string driver;
  // That processes can have: less what the driver keeps for itself and the pages it has retired.
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // What workers of this daemon hold already is among it.
  // Why it cannot be used, and then what stands above may be missing. UNAVAILABLE: its driver
  // failed; FAILED_PRECONDITION: how it is set, or what its driver says must be done to it.
  absl::Status trouble;
};

// By index; no driver is one error for all.
using Gpus = absl::StatusOr<std::vector<Gpu>>;

// A GPU as it was when the daemon last had it.
struct KnownGpu {
  Gpu gpu;
  int64_t capacity_bytes = 0;
};
using KnownGpus = std::map<std::string, KnownGpu>;  // By the name that it had: gpu:0.

struct Host {
  int64_t memory_bytes = 0;  // That the machine or the daemon's control group allows.
  int cores = 1;
  std::string processor;
  Gpus gpus = std::vector<Gpu>();
  KnownGpus known = {};
};

struct Device {
  std::string name;  // cpu:0, gpu:0
  int64_t capacity_bytes = 0;
  int threads = 1;
  std::string model;
  int64_t total_bytes = 0;
  int threads_per_job = 0;  // Of cpu:N; 0: ThreadShares divides them.
  int max_jobs = kMaxJobsPerDevice;
  Gpu gpu = {};            // Of gpu:N; in trouble: as it was known.
  int64_t host_bytes = 0;  // Of the host's memory, what plans may use beside all devices.
  // What the node measured of the device's worker: bytes that its process counts for before it
  // holds a model, and which way of multiplying is fastest for what, in the worker's own words.
  int64_t context_bytes = 0;
  int64_t unseen_bytes = 0;  // Of these, what the process cannot see of itself.
  std::string products = {};
  std::optional<program::MachineRates> rates = {};  // How fast it is; 0: not measured.

  bool is_gpu() const { return absl::StartsWith(name, "gpu:"); }
  // What promises and attempts are stored under: gpu:0 may be another GPU after a restart.
  const std::string& id() const { return gpu.uuid.empty() ? name : gpu.uuid; }
};

bool NamesGpu(const v1::DaemonConfig& config);

// None given: cpu:0 with half of the host's memory. Errors name the field, the limit and the value.
// A GPU that was used before and cannot be now is a device in trouble: after a bad upgrade of the
// driver, or before it is loaded, the daemon serves what else there is, and looks after workers.
absl::StatusOr<std::vector<Device>> DevicesOf(const v1::DaemonConfig& config, const Host& host);

// Bytes of the host's memory that plans may use beside those devices. Errors name the field, the
// limit and the value.
absl::StatusOr<int64_t> HostBudgetOf(const v1::DaemonConfig& config,
                                     const std::vector<Device>& devices, const Host& host);

// Threads that a worker of the device can have, the most first. The first job beside nobody has the
// whole, the second a half, the third and fourth a quarter, ..., down to the last of these. One
// where `threads_per_job` says how many; the host threads of a GPU's workers are not divided. A
// worker keeps what it was started with, so for a while more threads than there are can be at work.
std::vector<int> ThreadShares(const Device& device);

// What plans depend on of a device, for a worker with so many threads.
PlanMachine MachineOf(const Device& device, int threads);

// The same for a worker that has the device for itself.
PlanMachine MachineOf(const Device& device);

// As the policy sees them: idle.
std::vector<DeviceState> StatesOf(const std::vector<Device>& devices);

}  // namespace snug::server

#endif  // SERVER_PLACE_DEVICES_H_
