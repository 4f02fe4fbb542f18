// Blocks of 128 neighbours of a row as floats on the stack, and their codes in memory. Nothing here
// depends on the tensors' type but loading and storing values.
#ifndef KERNELS_CPU_LOOPS_CODE_BLOCKS_H_
#define KERNELS_CPU_LOOPS_CODE_BLOCKS_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/vector.h"
#include "kernels/quantize.h"

namespace snug::kernels::SNUG_ISA {

// Block `block` of row `row` (of this call) of a tensor of C columns.
struct BlockAt {
  int64_t row, C, block;
  int64_t begin() const { return block * kRangeBlock; }
  int64_t count() const { return C - begin() < kRangeBlock ? C - begin() : kRangeBlock; }
};

// body(BlockAt) for each block of a row.
template <typename Body>
static SNUG_INLINE void ForBlocks(int64_t row, int64_t C, Body body) {
  for (int64_t block = 0; block * kRangeBlock < C; ++block) body(BlockAt{row, C, block});
}

// body(offset) for each vector of a block.
template <typename Body>
static SNUG_INLINE void ForBlockVectors(Body body) {
  for (int64_t c = 0; c < kRangeBlock; c += kLanes) body(c);
}

struct Floats128 {
  float at[kRangeBlock];
};

// Elements behind the row's end become its last block's first one.
template <typename T>
static SNUG_INLINE void LoadBlock(const T* row, const BlockAt& at, Floats128& x) {
  const T* from = row + at.begin();
  if (at.count() == kRangeBlock) {
    ForBlockVectors([&](int64_t c)
                        SNUG_LAMBDA { Store(x.at + c, Load(from + c, Whole{}), Whole{}); });
    return;
  }
  ForVectors(at.count(), [&](int64_t c, auto part)
                             SNUG_LAMBDA { Store(x.at + c, Load(from + c, part), part); });
  for (int64_t c = at.count(); c < kRangeBlock; ++c) x.at[c] = x.at[0];
}
template <typename T>
static SNUG_INLINE void StoreBlock(const Floats128& x, const BlockAt& at, T* row) {
  T* to = row + at.begin();
  if (at.count() == kRangeBlock) {
    ForBlockVectors([&](int64_t c)
                        SNUG_LAMBDA { Store(to + c, Load(x.at + c, Whole{}), Whole{}); });
    return;
  }
  ForVectors(at.count(),
             [&](int64_t c, auto part) SNUG_LAMBDA { Store(to + c, Load(x.at + c, part), part); });
}

// ---- codes --------------------------------------------------------------------------------------

// memcpy of `count` bytes, which mostly are all of a block's: kAll, which needs no call.
template <int64_t kAll>
static SNUG_INLINE void CopyBytes(uint8_t* to, const uint8_t* from, int64_t count) {
  if (count == kAll) {
    memcpy(to, from, kAll);
  } else {
    memcpy(to, from, count);
  }
}

static SNUG_INLINE void StoreCodes(const Quantized& q, const BlockAt& at, const uint8_t* codes) {
  auto* row = static_cast<uint8_t*>(q.codes) + at.row * q.codes_stride;
  if (q.bits == CodeBits::k8) {
    CopyBytes<kRangeBlock>(row + at.begin(), codes, at.count());
    return;
  }
  uint8_t pairs[kRangeBlock / 2];
  for (int64_t k = 0; k < kRangeBlock / 2; ++k) {
    pairs[k] = static_cast<uint8_t>(codes[2 * k] | codes[2 * k + 1] << 4);
  }
  if (at.count() % 2 == 1) pairs[at.count() / 2] &= 0xf;
  CopyBytes<kRangeBlock / 2>(row + at.begin() / 2, pairs, (at.count() + 1) / 2);
}
// What is behind the row's end has code 0.
static SNUG_INLINE void LoadCodes(const Quantized& q, const BlockAt& at, uint8_t* codes) {
  const auto* row = static_cast<const uint8_t*>(q.codes) + at.row * q.codes_stride;
  if (q.bits == CodeBits::k8) {
    if (at.count() < kRangeBlock) memset(codes, 0, kRangeBlock);
    CopyBytes<kRangeBlock>(codes, row + at.begin(), at.count());
    return;
  }
  uint8_t pairs[kRangeBlock / 2];
  if (at.count() < kRangeBlock) memset(pairs, 0, sizeof(pairs));
  CopyBytes<kRangeBlock / 2>(pairs, row + at.begin() / 2, (at.count() + 1) / 2);
  for (int64_t k = 0; k < kRangeBlock / 2; ++k) {
    codes[2 * k] = pairs[k] & 0xf;
    codes[2 * k + 1] = pairs[k] >> 4;
  }
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_CODE_BLOCKS_H_
