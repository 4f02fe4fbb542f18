// A float is NaN or infinite when its exponent bits are all ones. Tested on the bits, in blocks of
// a fixed size that the compiler turns into vector instructions; only in a block that has one is it
// looked for element by element.
#include "worker/checkpoint/finite.h"

#include <algorithm>
#include <cstring>

namespace snug::checkpoint {
namespace {

constexpr int64_t kBlock = 4096;  // Elements: 16 KiB, half of a first-level cache.

template <typename Bits>
bool AnyNonFinite(const Bits* bits, int64_t count, Bits exponent) {
  Bits any = 0;
  for (int64_t i = 0; i < count; ++i) any |= (bits[i] & exponent) == exponent;
  return any != 0;
}

template <typename Bits>
int64_t FirstIn(const void* data, int64_t count, Bits exponent) {
  Bits block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t here = std::min(kBlock, count - begin);
    std::memcpy(block, static_cast<const char*>(data) + begin * sizeof(Bits), here * sizeof(Bits));
    if (!AnyNonFinite(block, here, exponent)) continue;
    const Bits* first = std::find_if(
        block, block + here, [exponent](Bits bits) { return (bits & exponent) == exponent; });
    return begin + (first - block);
  }
  return -1;
}

}  // namespace

int64_t FirstNonFiniteF32(const void* data, int64_t count) {
  return FirstIn<uint32_t>(data, count, 0x7f800000u);
}

int64_t FirstNonFiniteBf16(const void* data, int64_t count) {
  return FirstIn<uint16_t>(data, count, 0x7f80u);
}

int64_t FirstNonFinite(std::string_view dtype, const void* data, int64_t bytes) {
  if (dtype == "F32") return FirstNonFiniteF32(data, bytes / 4);
  if (dtype == "BF16") return FirstNonFiniteBf16(data, bytes / 2);
  if (dtype == "F16") return FirstIn<uint16_t>(data, bytes / 2, 0x7c00u);
  return -1;
}

}  // namespace snug::checkpoint
