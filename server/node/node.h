// Where attempts run, as the scheduler sees it: it starts them, listens to them, looks at them and
// at their devices, signals them and collects what they left. LocalNode is the machine of the
// daemon itself; another one would be one more implementation.
//
// Paths that pass through here are the daemon's own: an assignment's, a checkpoint's that a worker
// tells of. What a node of another machine needs there it takes there, and says it by these paths.
#ifndef SERVER_NODE_NODE_H_
#define SERVER_NODE_NODE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/node/attempt_files.h"
#include "server/node/gpu_use.h"
#include "server/node/worker_link.h"
#include "server/place/devices.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

enum class Liveness : uint8_t {
  kLives,    // The kernel's word.
  kGone,     // Likewise: its processes may be collected.
  kUnknown,  // Nobody can say now. Only to be asked again.
};

// Of one attempt: the shim that holds its lock, and the worker below that. For one thread.
class AttemptProcesses {
 public:
  virtual ~AttemptProcesses() = default;

  // The shim's number. Once; an error says that nothing was started.
  virtual absl::StatusOr<int64_t> Start(const Device& device, const v1::Assignment& assignment) = 0;
  virtual Liveness Look() = 0;
  // To the shim itself, never to a stranger with its number. NOT_FOUND: no such process.
  virtual absl::Status SignalShim(int signal) = 0;
  // To all of its session but the shim.
  virtual absl::Status SignalWorker(int signal) = 0;
  // The most memory that its worker, by the number in its Hello, ever had of the host; 0: nobody
  // knows now.
  virtual int64_t PeakHostBytes(int64_t worker) = 0;
};

// What an attempt left behind.
struct AttemptRemains {
  absl::StatusOr<std::optional<ExitRecord>> exit;
  absl::StatusOr<std::optional<v1::WorkerResult>> result;
};

class Node {
 public:
  virtual ~Node() = default;

  // Workers are heard from now on, those of an earlier life of the daemon as well. Once.
  virtual absl::StatusOr<std::unique_ptr<WorkerLink>> Listen(WorkerLink::Handlers handlers) = 0;

  // The name of this run of the machine: what was started under another one is gone. It is known
  // once Listen has returned OK.
  virtual std::string BootId() const = 0;
  // Of one that is to be started.
  virtual std::unique_ptr<AttemptProcesses> Expect(const std::string& job, int epoch) = 0;
  // Of one that an earlier life of the daemon has started; `shim` 0: its number is not known.
  virtual std::unique_ptr<AttemptProcesses> Adopt(const std::string& job, int epoch,
                                                  int64_t shim) = 0;

  // After its end. When this returns OK nothing runs in its name any more, and its folder of output
  // and its job's checkpoints are where the daemon keeps them (attempt_files.h). It may take
  // seconds, and may be called from any thread. DEADLINE_EXCEEDED: a process does not end, though
  // it was killed. UNAVAILABLE: it cannot be looked at now.
  struct EndedAttempt {
    AttemptIdentity identity;
    std::string boot_id;
    int64_t shim = 0;
  };
  virtual absl::StatusOr<AttemptRemains> Collect(const EndedAttempt& ended) = 0;

  // Whether anybody looks at GPUs here. Where nobody does, what was known of them at the start
  // holds.
  virtual bool WatchesGpus() const = 0;
  // Of those among the devices. Takes milliseconds, and minutes when one is in trouble; from one
  // thread at a time.
  virtual GpuUses LookAtGpus(const std::vector<Device>& devices) = 0;

  // Removes weights that no worker shares any more. From any thread.
  virtual void SweepSharedWeights() = 0;
};

}  // namespace snug::server

#endif  // SERVER_NODE_NODE_H_
