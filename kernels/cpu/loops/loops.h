// The instruction sets that the inner loops of the CPU kernels are compiled for: which this machine
// has, which is used, and what attention's blocks are made of on each. The loops of other ops are
// called through versions.h.
#ifndef KERNELS_CPU_LOOPS_LOOPS_H_
#define KERNELS_CPU_LOOPS_LOOPS_H_

#include <cstdint>

#include "kernels/cpu/loops/tiles.h"

namespace snug::kernels {

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

struct Loops {
  const char* name;
  InstructionSet set;
  bool multiplies_pairs;  // Whether tiles may be of pairs of bf16.
  void (*load)(const LoadTile&);
  void (*store_rows)(const StoreTile&);
  void (*multiply)(const TileProduct&);
  void (*softmax)(const SoftmaxTile&);
  void (*keep)(const KeepTile&);
  void (*gradient)(const GradientTile&);
  void (*row_dots)(const RowDots&);
};

// The table of an instruction set; null where this build or this machine does not have it.
const Loops* LoopsOf(InstructionSet isa);

// The best table that this machine can run; chosen once.
const Loops& BestLoops();

// Makes BestLoops() give this table, to compare instruction sets in tests. Not while an op runs.
void UseLoops(const Loops& loops);

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_LOOPS_H_
