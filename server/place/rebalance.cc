#include "server/place/rebalance.h"

#include <utility>

namespace snug::server {

int64_t FreeBytesOf(const DeviceState& device) {
  return device.capacity_bytes - device.reserved_bytes - device.taken_bytes;
}

bool TakesAnother(const DeviceState& device) {
  return device.trouble.empty() && device.jobs < device.max_jobs;
}

std::optional<SqueezeThere> BestSqueeze(const std::vector<Neighbourhood>& neighbourhoods) {
  std::optional<SqueezeThere> best;
  for (size_t i = 0; i < neighbourhoods.size(); ++i) {
    const Neighbourhood& there = neighbourhoods[i];
    if (!TakesAnother(there.device)) continue;
    std::optional<RoomMade> made =
        MakeRoom(there.newcomer, there.neighbours, FreeBytesOf(there.device));
    if (!made || (best && best->made.gain >= made->gain)) continue;
    best = SqueezeThere{i, *std::move(made)};
  }
  return best;
}

std::vector<PlanMove> Relaxations(const DeviceState& device,
                                  const std::vector<SqueezableJob>& jobs) {
  const int64_t free = FreeBytesOf(device);
  if (!device.trouble.empty() || free <= 0) return {};
  return FillRoom(jobs, free);
}

}  // namespace snug::server
