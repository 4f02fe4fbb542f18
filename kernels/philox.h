// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random
// numbers as a function of what they are for. Nothing is stored, and a recompute draws the same.
//
// Counter layout: word 0 and the low byte of word 1 are the block index (40 bits), the rest of word
// 1 the op (24 bits), word 2 the step, word 3 the micro-batch. The key is the job's seed.
#ifndef KERNELS_PHILOX_H_
#define KERNELS_PHILOX_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// What a draw is for. Two ops of a step (block and op within it) have different `op`.
struct RandomSite {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t micro_batch = 0;
  uint32_t op = 0;  // < kMaxRandomOps
};
inline constexpr uint32_t kMaxRandomOps = 1u << 24;
inline constexpr uint64_t kMaxRandomBlocks = uint64_t{1} << 40;

struct Random4 {
  uint32_t word[4];
};

namespace philox {
inline constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
inline constexpr int kRounds = 10;
}  // namespace philox

// The cipher itself.
SNUG_HOST_DEVICE inline Random4 Philox(Random4 c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < philox::kRounds; ++round) {
    const uint64_t a = uint64_t{philox::kMultiplier0} * c.word[0];
    const uint64_t b = uint64_t{philox::kMultiplier1} * c.word[2];
    c = {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(a)}};
    k0 += philox::kWeyl0;
    k1 += philox::kWeyl1;
  }
  return c;
}

// Four 32-bit words for block `block` (< kMaxRandomBlocks) of a site.
SNUG_HOST_DEVICE inline Random4 RandomBlock(const RandomSite& site, uint64_t block) {
  const uint32_t high = static_cast<uint32_t>(block >> 32) | (site.op << 8);
  return Philox({{static_cast<uint32_t>(block), high, site.step, site.micro_batch}}, site.seed);
}

// A word as a number in [0, 1): its upper 24 bits, which fp32 holds exactly.
SNUG_HOST_DEVICE inline float ToUniform(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / (1 << 24));
}

}  // namespace snug::kernels

#endif  // KERNELS_PHILOX_H_
