// The arithmetic of sampling.h that the CPU and CUDA share: on integers, so that sums are the same
// in whatever order they are taken. Scores are below 2^31, rows at most 2^30, so that sums stay
// below 2^61, and a score times a number of rows too.
#ifndef KERNELS_SAMPLING_RULES_H_
#define KERNELS_SAMPLING_RULES_H_

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels::sampling {

// Of some rows: how many, and the sum of their scores.
struct Mass {
  uint64_t count = 0, sum = 0;
};

// A score as bits that order like it: 0 unless positive; what is not finite is the largest number.
SNUG_HOST_DEVICE inline uint32_t OrderedBits(float score) {
  constexpr uint32_t kLargest = 0x7f7fffffu;
  const uint32_t bits = BitsOf(score);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return kLargest;  // NaN.
  if (bits >> 31 != 0) return 0;
  return bits < kLargest ? bits : kLargest;
}

// The score as an integer, relative to the largest of all, which becomes one of 31 bits. Positive
// scores stay positive.
SNUG_HOST_DEVICE inline uint32_t Quantize(uint32_t bits, uint32_t largest) {
  if (bits == 0) return 0;
  const uint32_t exponent = bits >> 23, top = largest >> 23;
  const uint32_t mantissa = (bits & 0x7fffffu) | (exponent == 0 ? 0u : 0x800000u);
  const uint32_t shift = (top == 0 ? 1 : top) - (exponent == 0 ? 1 : exponent);
  const uint32_t score = shift < 31 ? mantissa << 7 >> shift : 0;
  return score == 0 ? 1 : score;
}

// What a row's score is at least: share * mean, not 0 unless the share is.
SNUG_HOST_DEVICE inline uint32_t FloorOf(float share, const Mass& all) {
  if (share == 0.0f || all.count == 0) return 0;
  const auto fraction = static_cast<uint64_t>(static_cast<double>(share) * 0x1p32);
  const auto score = static_cast<uint32_t>(fraction * (all.sum / all.count) >> 32);
  return score == 0 ? 1 : score;
}

// Finds the certain set by its smallest score x*: the smallest x with
//
//   H(x) = x * (k - #{q > x}) - sum{q <= x} > 0    and k > #{q > x}
//
// H is convex, so the tangent where H was measured meets 0 at x* or beyond it: Newton's steps come
// down to x*, in a few steps on any usual scores. Bisection in between bounds the steps by 64.
//
//   while (!search.done()) search.Tell(mass of the rows with q > search.at());
class CertainSearch {
 public:
  // `all`: of the rows with a score.
  SNUG_HOST_DEVICE CertainSearch(uint64_t k, uint64_t largest, const Mass& all)
      : k_(k), all_(all), above_low_(all) {
    Descend(Mass{});
    if (high_ <= largest) return;
    low_ = largest;  // C is empty.
    high_ = largest + 1;
    above_low_ = Mass{};
  }

  SNUG_HOST_DEVICE bool done() const { return high_ - low_ == 1; }
  SNUG_HOST_DEVICE uint64_t at() const {
    const bool bisect = steps_ > 4 && steps_ % 2 == 1;
    return bisect ? low_ + (high_ - low_) / 2 : high_ - 1;
  }
  SNUG_HOST_DEVICE void Tell(const Mass& above) {
    const uint64_t x = at();
    ++steps_;
    if (k_ > above.count && x * (k_ - above.count) > all_.sum - above.sum) {
      Descend(above);
    } else {
      low_ = x;
      above_low_ = above;
    }
  }

  // Certain are the rows with q > limit().
  SNUG_HOST_DEVICE uint64_t limit() const { return low_; }
  SNUG_HOST_DEVICE uint64_t certain() const { return above_low_.count; }
  SNUG_HOST_DEVICE uint64_t rest() const { return all_.sum - above_low_.sum; }  // S_R

 private:
  SNUG_HOST_DEVICE void Descend(const Mass& above) {
    high_ = (all_.sum - above.sum) / (k_ - above.count) + 1;
  }

  uint64_t k_;
  Mass all_, above_low_;         // above_low_: of the rows with q > low_.
  uint64_t low_ = 0, high_ = 0;  // low_ < x* <= high_.
  uint32_t steps_ = 0;
};

// How the rows that are not certain are drawn: `draws` of them, from scores that add up to `rest`.
struct Draw {
  uint64_t draws = 0, rest = 0;
  SNUG_HOST_DEVICE float Weight(uint32_t score) const {
    return static_cast<float>(static_cast<double>(rest) /
                              (static_cast<double>(draws) * static_cast<double>(score)));
  }
};

// The upper half of a product of 128 bits.
SNUG_HOST_DEVICE inline uint64_t MulHigh(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & 0xffffffffu)) >> 32);
}

// Pair `pair` (0 or 1) of a block's words as a uniform integer below `limit`.
SNUG_HOST_DEVICE inline uint64_t UniformBelow(uint64_t limit, const Random4& random, int pair) {
  const uint64_t high = pair == 0 ? random.word[0] : random.word[2];
  const uint64_t low = pair == 0 ? random.word[1] : random.word[3];
  return MulHigh(high << 32 | low, limit);
}

// The systematic sample takes the rows at which floor((draws * cumulated + start) / rest) rises,
// with `start` uniform below `rest`: row t with probability draws * q_t / rest, `draws` in all.
struct Crossing {
  uint64_t rows = 0;       // Taken before: the quotient,
  uint64_t remainder = 0;  // and what is left of it.
};
SNUG_HOST_DEVICE inline bool Takes(const Crossing& before, uint32_t score, const Draw& draw) {
  return before.remainder + score * draw.draws >= draw.rest;
}
// The quotient in fp64 is off by two at most, which the remainder, exact modulo 2^64, tells.
SNUG_HOST_DEVICE inline Crossing CrossingAt(uint64_t cumulated, uint64_t start, const Draw& draw) {
  auto rows =
      static_cast<int64_t>(static_cast<double>(cumulated) * static_cast<double>(draw.draws) /
                           static_cast<double>(draw.rest));
  const auto rest = static_cast<int64_t>(draw.rest);
  auto remainder = static_cast<int64_t>(cumulated * draw.draws + start -
                                        static_cast<uint64_t>(rows) * draw.rest);
  for (; remainder < 0; remainder += rest) --rows;
  for (; remainder >= rest; remainder -= rest) ++rows;
  return {static_cast<uint64_t>(rows), static_cast<uint64_t>(remainder)};
}

}  // namespace snug::kernels::sampling

#endif  // KERNELS_SAMPLING_RULES_H_
