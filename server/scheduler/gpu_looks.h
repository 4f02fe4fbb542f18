// What the last look at the GPUs has shown, and when the next one is due. Only keeps the books: the
// scheduler looks, on a pool of its own, because a GPU in trouble can keep the driver's answer for
// minutes.
#ifndef SERVER_SCHEDULER_GPU_LOOKS_H_
#define SERVER_SCHEDULER_GPU_LOOKS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/node/gpu_use.h"
#include "server/scheduler/limits.h"

namespace snug::server {

class GpuLooks {
 public:
  explicit GpuLooks(const SchedulerLimits& limits)
      : every_(limits.measure_gpus), silence_(limits.gpu_silence) {}

  // Whether a look is due: it begins with this.
  bool Begin(absl::Duration now);
  // What it has shown. False: it began before something that it should have seen; another is due.
  bool End(GpuUses uses);
  // By what was seen of this device before, nothing is to be decided any more.
  void Forget(const std::string& device);

  // Whether a look takes so long that nothing is known any more.
  bool Silent(absl::Duration now) const { return looking_ && now - began_ > silence_; }
  // Null: not looked at yet, or forgotten.
  const absl::StatusOr<GpuUse>* Find(const std::string& device) const;

 private:
  const absl::Duration every_, silence_;
  GpuUses uses_;
  absl::Duration began_, due_;
  bool looking_ = false;
  bool outdated_ = false;  // The one under way.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_GPU_LOOKS_H_
