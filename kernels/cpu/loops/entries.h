// The functions that one compilation of the loops defines, in the namespace of its instruction set.
#ifndef KERNELS_CPU_LOOPS_ENTRIES_H_
#define KERNELS_CPU_LOOPS_ENTRIES_H_

#include "kernels/cpu/loops/loops.h"

namespace snug::kernels::SNUG_ISA {

void NormalizeForwardRows(const NormalizeForwardParams& p, Range rows);
void NormalizeBackwardRows(const NormalizeBackwardParams& p, Range rows);
void AffineForwardRows(const AffineForwardParams& p, Range rows);
void AffineBackwardColumns(const AffineBackwardParams& p, Range columns);
void RmsNormForwardRows(const RmsNormForwardParams& p, Range rows);
void RmsNormBackwardRows(const RmsNormBackwardParams& p, Range rows);
void RmsNormBackwardGammaColumns(const RmsNormBackwardParams& p, Range columns);
void BiasBackwardColumns(const BiasBackwardParams& p, Range columns);
void RopeRows(const RopeParams& p, bool backward, Range rows);
void GluForwardRows(const GluForwardParams& p, Range rows);
void GluBackwardRows(const GluBackwardParams& p, Range rows);
void CrossEntropyRows(const CrossEntropyParams& p, Range rows);
void DropoutRows(const DropoutParams& p, Range rows);
void CastRowsRange(const CastRowsParams& p, Range rows);
void AddRowsRange(const AddRowsParams& p, Range rows);
void EmbeddingForwardRows(const EmbeddingForwardParams& p, Range rows);
void EmbeddingBackwardColumns(const EmbeddingBackwardParams& p, Range columns);
void AdamWElements(const AdamWTensor& tensor, const AdamWScalars& scalars, Range elements);
double SumSquaresElements(const NormTensor& tensor, Range elements);
void LoadTileForm(const LoadTile& p);
void StoreTileRows(const StoreTile& p);
void MultiplyTile(const TileProduct& p);
void SoftmaxTileRows(const SoftmaxTile& p);
void GradientTileRows(const GradientTile& p);
void RowDotsRows(const RowDots& p);

extern const Loops kLoops;

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_ENTRIES_H_
