// The largest of a row's numbers, by their bits.
#ifndef KERNELS_CPU_LOOPS_PEAK_H_
#define KERNELS_CPU_LOOPS_PEAK_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

struct Peak {
  float max;    // The largest; a NaN above infinity or below -infinity, by its sign.
  bool finite;  // All of them.
};

// Numbers sort as their bits do, as integers, where those below 0 have all but the sign turned
// round. The maximum of integers is exact, whatever the vectors that the compiler makes of this.
template <typename T>
static inline Peak PeakOf(const T* x, int64_t n) {
  using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int16_t>;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
  constexpr int kSign = 8 * sizeof(T) - 1;
  constexpr Bits kInfinity = std::is_same_v<T, float>  ? static_cast<Bits>(0x7f800000)
                             : std::is_same_v<T, bf16> ? static_cast<Bits>(0x7f80)
                                                       : static_cast<Bits>(0x7c00);
  const auto turned = [](Bits bits) SNUG_LAMBDA {
    return static_cast<Bits>(bits ^ ((bits >> kSign) & kMagnitude));
  };
  Bits largest = std::numeric_limits<Bits>::min(), magnitude = 0;
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    memcpy(&bits, x + i, sizeof(bits));
    const Bits place = turned(bits), size = static_cast<Bits>(bits & kMagnitude);
    largest = place > largest ? place : largest;
    magnitude = size > magnitude ? size : magnitude;
  }
  T max;
  const Bits bits = turned(largest);
  memcpy(&max, &bits, sizeof(max));
  return {Load(&max, Part{1})[0], magnitude < kInfinity};
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_PEAK_H_
