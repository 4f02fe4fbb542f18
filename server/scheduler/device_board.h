// The devices: as the policy sees them, and as users and metrics do. GPUs are looked at every few
// seconds.
#ifndef SERVER_SCHEDULER_DEVICE_BOARD_H_
#define SERVER_SCHEDULER_DEVICE_BOARD_H_

#include <string>
#include <vector>

#include "server/place/devices.h"
#include "server/scheduler/entry.h"
#include "server/scheduler/gpu_looks.h"
#include "server/scheduler/limits.h"
#include "server/scheduler/task_pool.h"

namespace snug::server {

struct SchedulerCore;

class DeviceBoard {
 public:
  DeviceBoard(SchedulerCore& core, const SchedulerLimits& limits) : core_(core), looks_(limits) {}

  void Show();
  // Where the entry's attempt is.
  void ShowPlace(Entry& entry);
  std::vector<DeviceState> States() const;
  // Why the entry's attempt is to end, and its job to go on elsewhere: its device is drained, or it
  // slows another job there. Empty: it is not.
  std::string WhyItMoves(const Entry& entry) const;
  bool MovesOff(const Entry& entry) const { return !WhyItMoves(entry).empty(); }

  // When a look is due.
  void LookAtGpus();
  // Nothing is decided before the next look has ended.
  bool AwaitsLook() const;
  // What was seen of the device is not what it is now.
  void Forget(const std::string& device) { looks_.Forget(device); }
  // What the attempt's process takes.
  void NoteProcessBytes(Entry& entry);
  // What its worker has seen of that itself just now: the last look in its job.
  void NoteLook(Entry& entry);

  void Stop() { gpu_pool_.Stop(); }

 private:
  // Why nothing new goes there; empty: nothing is the matter.
  std::string TroubleOf(const Device& device) const;
  std::string DriverTroubleOf(const Device& device) const;
  void OnGpusSeen(const GpuUses& uses);
  // Of the attempt's process alone; 0: it does not say, or there is none.
  int64_t DriverBytes(const Entry& entry) const;
  // Writes into the job what of its memory nobody has counted. False: that is written, or unknown.
  bool Judge(Entry& entry, int64_t by_driver);

  SchedulerCore& core_;
  GpuLooks looks_;
  bool gpus_silent_ = false;  // As shown.
  TaskPool gpu_pool_{1};      // Where the driver is asked.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_DEVICE_BOARD_H_
