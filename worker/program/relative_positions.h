// T5's relative positions (Raffel et al. 2020, sec. 2.1): distances between tokens fall into
// buckets, of which each has a bias per head that all layers of a half share. Buckets are as wide
// as one distance at first, then wider and wider, up to `farthest`, from where on all are in the
// last.
#ifndef WORKER_PROGRAM_RELATIVE_POSITIONS_H_
#define WORKER_PROGRAM_RELATIVE_POSITIONS_H_

#include <cstdint>
#include <vector>

namespace snug::program {

inline constexpr int64_t kFewestBuckets = 4, kMostBuckets = 4'096, kFarthestDistance = 65'536;

struct Distances {
  int64_t buckets = 0;   // 0: attention has no bias.
  int64_t farthest = 0;  // Tokens.
  bool operator==(const Distances&) const = default;

  // Distances that are told apart: 0 to farthest, and, where a query sees keys behind it, as many
  // on that side.
  int64_t entries(bool causal) const { return buckets == 0 ? 0 : Origin(causal) + farthest + 1; }
  // The entry of distance 0; those before it are of keys behind the query.
  int64_t Origin(bool causal) const { return causal ? 0 : farthest; }
  // Half of a side's buckets are for a distance each, of a side of the causal half most.
  bool within_limits() const {
    return buckets >= kFewestBuckets && buckets <= kMostBuckets && farthest > buckets / 2 &&
           farthest <= kFarthestDistance;
  }
};

// The bucket of each entry, as transformers' T5 computes it in fp32.
std::vector<int32_t> BucketsOf(const Distances& distances, bool causal);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_RELATIVE_POSITIONS_H_
