// The functions on tiles that one compilation of the loops defines, in the namespace of its
// instruction set.
#ifndef KERNELS_CPU_LOOPS_ENTRIES_H_
#define KERNELS_CPU_LOOPS_ENTRIES_H_

#include "kernels/cpu/loops/loops.h"

namespace snug::kernels::SNUG_ISA {

void LoadTileForm(const LoadTile& p);
void StoreTileRows(const StoreTile& p);
void MultiplyTile(const TileProduct& p);
void SoftmaxTileRows(const SoftmaxTile& p);
void KeepTileRows(const KeepTile& p);
void GradientTileRows(const GradientTile& p);
void RowDotsRows(const RowDots& p);

extern const Loops kLoops;

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_ENTRIES_H_
