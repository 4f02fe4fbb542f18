#include "worker/program/relative_positions.h"

#include <algorithm>
#include <cmath>

namespace snug::program {
namespace {

// Of one side, `buckets` for distances from 0 on: half of them for a distance each.
int64_t BucketOf(int64_t distance, int64_t buckets, int64_t farthest) {
  const int64_t exact = buckets / 2;
  if (distance < exact) return distance;
  const float ratio =
      std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(farthest) / static_cast<double>(exact)));
  const float step = ratio * static_cast<float>(buckets - exact);
  return std::min(exact + static_cast<int64_t>(step), buckets - 1);
}

}  // namespace

std::vector<int32_t> BucketsOf(const Distances& distances, bool causal) {
  std::vector<int32_t> buckets;
  const int64_t side = causal ? distances.buckets : distances.buckets / 2;
  const int64_t origin = distances.Origin(causal);
  for (int64_t entry = 0; entry < distances.entries(causal); ++entry) {
    const int64_t distance = entry - origin;
    const int64_t bucket = BucketOf(std::abs(distance), side, distances.farthest);
    buckets.push_back(static_cast<int32_t>(distance < 0 ? side + bucket : bucket));
  }
  return buckets;
}

}  // namespace snug::program
