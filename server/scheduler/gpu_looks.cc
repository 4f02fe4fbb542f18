#include "server/scheduler/gpu_looks.h"

#include <utility>

namespace snug::server {

bool GpuLooks::Begin(absl::Duration now) {
  if (looking_ || now < due_) return false;
  looking_ = true;
  began_ = now;
  due_ = now + every_;
  return true;
}

bool GpuLooks::End(GpuUses uses) {
  looking_ = false;
  if (std::exchange(outdated_, false)) return false;
  uses_ = std::move(uses);
  return true;
}

void GpuLooks::Forget(const std::string& device) {
  uses_.erase(device);
  due_ = absl::ZeroDuration();
  outdated_ = looking_;
}

const absl::StatusOr<GpuUse>* GpuLooks::Find(const std::string& device) const {
  const auto found = uses_.find(device);
  return found == uses_.end() ? nullptr : &found->second;
}

}  // namespace snug::server
