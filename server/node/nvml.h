// NVML, the library of NVIDIA's driver that tells of GPUs without using them: opened with dlopen
// when a configuration names a GPU, so that the daemon needs no driver and no CUDA, and holds no
// context, which would cost memory on the GPU and keep its clocks up.
//
// Declares the few functions it uses, as of NVML's stable interface; knows nothing of attempts.
#ifndef SERVER_NODE_NVML_H_
#define SERVER_NODE_NVML_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/place/devices.h"

namespace snug::server {

// A process with a context on a GPU.
struct GpuProcess {
  pid_t pid = 0;                 // As the driver counts them: in a container, perhaps not ours.
  std::optional<int64_t> bytes;  // Nothing: the driver does not say (some containers and vGPUs).
};

struct GpuReading {
  Gpu gpu;
  // Nothing: the driver tells nobody here (vGPU, WSL, some containers).
  std::optional<std::vector<GpuProcess>> processes;
};

using GpuReadings = absl::StatusOr<std::vector<GpuReading>>;  // By index.

// Thread-safe, as NVML is. A call can take long when a GPU is in trouble.
class GpuDriver {
 public:
  // FAILED_PRECONDITION: no driver, too old a one, or one that does not answer.
  static absl::StatusOr<std::unique_ptr<GpuDriver>> Open(const std::string& library);
  ~GpuDriver();

  // Every GPU, those that nobody uses here too: looking one up by its UUID fails where another one
  // is lost.
  GpuReadings ReadGpus() const;

 private:
  struct Functions;
  explicit GpuDriver(void* library);
  absl::Status Load(const std::string& library);
  absl::Status Error(const std::string& call, int code) const;
  absl::Status Read(GpuReading& reading) const;
  absl::Status CheckSettings(void* handle, int index) const;
  absl::Status CheckHealth(void* handle) const;
  absl::Status ReadMemory(void* handle, Gpu& gpu) const;
  absl::StatusOr<std::optional<std::vector<GpuProcess>>> ReadProcesses(void* handle) const;

  void* library_;
  std::unique_ptr<Functions> functions_;
  bool started_ = false;
};

}  // namespace snug::server

#endif  // SERVER_NODE_NVML_H_
