// The CUDA side of each op, kernels/cuda/<op>.cu: called with checked arguments and a stream that
// is not null; what arguments point to lies on the device, and only kernels may read it. Weak: in a
// build without CUDA these functions are null.
#ifndef KERNELS_CUDA_ENTRIES_H_
#define KERNELS_CUDA_ENTRIES_H_

#include "kernels/adamw.h"
#include "kernels/bias.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/grad_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "kernels/uniform_noise.h"

namespace snug::kernels::cuda {

[[gnu::weak]] Error AdamW(const AdamWParams& p, Stream stream);
[[gnu::weak]] Error AddRows(const AddRowsParams& p, Stream stream);
[[gnu::weak]] Error AddUniformNoise(const UniformNoiseParams& p, Stream stream);
[[gnu::weak]] Error AffineBackward(const AffineBackwardParams& p, Stream stream);
[[gnu::weak]] Error AffineForward(const AffineForwardParams& p, Stream stream);
[[gnu::weak]] Error BiasBackward(const BiasBackwardParams& p, Stream stream);
[[gnu::weak]] Error BiasForward(const BiasForwardParams& p, Stream stream);
[[gnu::weak]] Error CastRows(const CastRowsParams& p, Stream stream);
[[gnu::weak]] Error ClipFactor(const ClipFactorParams& p, Stream stream);
[[gnu::weak]] Error CrossEntropy(const CrossEntropyParams& p, Stream stream);
[[gnu::weak]] Error Dropout(const DropoutParams& p, Stream stream);
[[gnu::weak]] Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream);
[[gnu::weak]] Error EmbeddingForward(const EmbeddingForwardParams& p, Stream stream);
[[gnu::weak]] Error GatherRows(const GatherRowsParams& p, Stream stream);
[[gnu::weak]] Error GluBackward(const GluBackwardParams& p, Stream stream);
[[gnu::weak]] Error GluForward(const GluForwardParams& p, Stream stream);
[[gnu::weak]] Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream);
[[gnu::weak]] Error NormalizeForward(const NormalizeForwardParams& p, Stream stream);
[[gnu::weak]] Error RopeBackward(const RopeParams& p, Stream stream);
[[gnu::weak]] Error RopeForward(const RopeParams& p, Stream stream);
[[gnu::weak]] Error RopeTable(const RopeTableParams& p, Stream stream);
[[gnu::weak]] Error ScatterRows(const ScatterRowsParams& p, Stream stream);
[[gnu::weak]] Error SumSquares(const SumSquaresParams& p, Stream stream);

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ENTRIES_H_
