// What attention on the CPU holds while it runs: pieces of the workspace that it is given, each on
// a cache line of its own. Measured by laying them out from null.
#ifndef KERNELS_CPU_ATTENTION_MEMORY_H_
#define KERNELS_CPU_ATTENTION_MEMORY_H_

#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/loops/tiles.h"

namespace snug::kernels::cpu {

// Hands out pieces of the workspace, each on a cache line of its own.
class Pieces {
 public:
  explicit Pieces(float* base) : base_(base) {}
  float* Take(int64_t floats) {
    float* piece = base_ == nullptr ? nullptr : base_ + taken_;
    taken_ += RoundUp(floats, 16);
    return piece;
  }
  int64_t taken() const { return taken_; }

 private:
  float* base_;
  int64_t taken_ = 0;
};

// What a thread's unit holds in forward.
struct ForwardMemory {
  Pieces pieces;
  float* out;      // (heads, T, width)
  float* max;      // (heads, T)
  float* sum;      // (heads, T)
  float* columns;  // Keys of a block, transposed.
  float* values;   // (keys, width)
  float* query;    // (query_block, width)
  float* scores;   // (kTileRows, stride)
  ForwardMemory(const Blocks& b, float* base)
      : pieces(base),
        out(pieces.Take(b.heads * b.queries * b.width)),
        max(pieces.Take(b.heads * b.queries)),
        sum(pieces.Take(b.heads * b.queries)),
        columns(pieces.Take(b.keys * b.width)),
        values(pieces.Take(b.keys * b.width)),
        query(pieces.Take(b.query_block * b.width)),
        scores(pieces.Take(kTileRows * b.stride)) {}
};

// And in backward.
struct BackwardMemory {
  Pieces pieces;
  float* dq;             // (heads, T, width), without the scale
  float* delta;          // (heads, T)
  float* key_columns;    // Keys and values of a block, transposed,
  float* value_columns;  //
  float* keys;           // (keys, width) and the keys as they are.
  float* dk;             // (keys, width), without the scale
  float* dv;             // (keys, width)
  // Queries and dO of a block, left and right operands. Two of fp32 are one, two of pairs as much.
  float *query, *query_terms;
  float *dO, *dO_terms;
  float* scores;   // (query_block, stride) scores, then p
  float* dp;       // (query_block, stride) dp, then ds
  float* ds_rows;  // (kTileRows, stride / 2) ds of a tile, where words of dp hold two rows
  BackwardMemory(const Blocks& b, bool pairs, float* base)
      : pieces(base),
        dq(pieces.Take(b.heads * b.queries * b.width)),
        delta(pieces.Take(b.heads * b.queries)),
        key_columns(pieces.Take(b.keys * b.width)),
        value_columns(pieces.Take(b.keys * b.width)),
        keys(pieces.Take(b.keys * b.width)),
        dk(pieces.Take(b.keys * b.width)),
        dv(pieces.Take(b.keys * b.width)),
        query(pieces.Take(b.query_block * b.width)),
        query_terms(pairs ? query + b.query_block * b.width / 2 : query),
        dO(pieces.Take(b.query_block * b.width)),
        dO_terms(pairs ? dO + b.query_block * b.width / 2 : dO),
        scores(pieces.Take(b.query_block * b.stride)),
        dp(pieces.Take(b.query_block * b.stride)),
        ds_rows(pieces.Take(kTileRows * b.stride / 2)) {}
};

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_MEMORY_H_
