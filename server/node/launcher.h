// Starts attempts on this machine.
#ifndef SERVER_NODE_LAUNCHER_H_
#define SERVER_NODE_LAUNCHER_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/place/devices.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

struct LauncherSettings {
  std::string shim;  // Paths of the programs.
  std::string worker;
  std::string worker_cuda;  // Of gpu devices.
  std::string state_dir;
  std::string instance;   // Of the store: stands in the exit record.
  std::string socket;     // Of snug-launch, which starts attempts; empty: the daemon does.
  std::string cgroup;     // Where groups of workers are made (delegated_group.h); empty: nowhere.
  int most_attempts = 0;  // At once, on all devices together.
};

// The program for attempts on this device.
const std::string& WorkerOf(const LauncherSettings& settings, const Device& device);

// What a worker's process is told beside the daemon's own environment, as "NAME=value". Of a GPU:
// to see it alone, by its UUID (CUDA counts GPUs otherwise than the driver does); to load kernels
// when they are first used, which is what the context is measured with; and to keep out of MPS,
// wherever a server of it listens: there a fault of one client ends all, and its clients' memory is
// not in the driver's list of processes.
std::vector<std::string> WorkerEnvironment(const Device& device);

// Writes the assignment and starts a shim that holds the attempt's lock from this moment on. What
// another history of the store has left in the attempt's folder is moved aside, unless its shim
// lives: FAILED_PRECONDITION. Returns the shim's pid.
absl::StatusOr<pid_t> LaunchAttempt(const LauncherSettings& settings, const Device& device,
                                    const v1::Assignment& assignment);

// The kernel's id of this boot: what was started under another one is gone. It is read once and
// kept, so whoever has had it once always gets it. UNAVAILABLE: it cannot be read now, and nothing
// follows from that.
absl::StatusOr<std::string> BootId();

// Collects a shim that has ended, if it was a child of this process, so that no zombie stays.
void ReapShim(pid_t shim);

}  // namespace snug::server

#endif  // SERVER_NODE_LAUNCHER_H_
