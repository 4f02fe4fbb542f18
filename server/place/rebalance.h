// What a round does about plans once it has placed what fits: room is made for the job that waits
// first, or, where nobody waits, what is free is used. Pure: the daemon (scheduler/plan_changes.h)
// and the simulator (sim/) both ask here.
#ifndef SERVER_PLACE_REBALANCE_H_
#define SERVER_PLACE_REBALANCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/place/policy.h"
#include "server/place/squeeze.h"

namespace snug::server {

// A device as the job that waits finds it.
struct Neighbourhood {
  DeviceState device;
  SqueezableJob newcomer;                 // With the plans that it may have there.
  std::vector<SqueezableJob> neighbours;  // Whose plans can be changed now.
};

struct SqueezeThere {
  size_t where = 0;  // Index of the neighbourhood.
  RoomMade made;
};

// That nobody has been promised or has taken; below 0 where others have taken too much.
int64_t FreeBytesOf(const DeviceState& device);

// Whether one more job may run there, had it the bytes.
bool TakesAnother(const DeviceState& device);

// Where most is gained by making room. Nothing: nowhere can it be made, or nowhere does it gain.
std::optional<SqueezeThere> BestSqueeze(const std::vector<Neighbourhood>& neighbourhoods);

// The moves that use what is free of a device for which nobody waits.
std::vector<PlanMove> Relaxations(const DeviceState& device,
                                  const std::vector<SqueezableJob>& jobs);

}  // namespace snug::server

#endif  // SERVER_PLACE_REBALANCE_H_
