// What tests of the policy ask it, and what it decides.
#ifndef TESTS_SERVER_PLACE_DECISIONS_H_
#define TESTS_SERVER_PLACE_DECISIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/place/policy.h"

namespace snug::server {

inline constexpr int64_t kGiB = int64_t{1} << 30;

// A job with these plans on each of two devices.
inline QueuedJob Job(const std::string& id, int64_t order, const std::vector<PlanNeeds>& plans) {
  return {.id = id, .order = order, .plans = {{"cpu:0", plans}, {"cpu:1", plans}}};
}

// "JOB on DEVICE", in the order of the placements.
inline std::vector<std::string> Placed(const Decision& decision) {
  std::vector<std::string> placed;
  for (const Placement& placement : decision.placements)
    placed.push_back(placement.job + " on " + placement.device);
  return placed;
}

}  // namespace snug::server

#endif  // TESTS_SERVER_PLACE_DECISIONS_H_
