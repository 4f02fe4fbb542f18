// The CUDA side of each op, kernels/cuda/<op>.cu: called with checked arguments and a stream that
// is not null; what arguments point to lies on the device, and only kernels may read it. Weak: in a
// build without CUDA these functions are null.
#ifndef KERNELS_CUDA_ENTRIES_H_
#define KERNELS_CUDA_ENTRIES_H_

#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/affine.h"
#include "kernels/attention.h"
#include "kernels/bias.h"
#include "kernels/codes.h"
#include "kernels/columns.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/frozen_linear.h"
#include "kernels/glu.h"
#include "kernels/grad_norm.h"
#include "kernels/int8_weight.h"
#include "kernels/mean_rows.h"
#include "kernels/nf4.h"
#include "kernels/norm_merge.h"
#include "kernels/normalize.h"
#include "kernels/quantize.h"
#include "kernels/quantized_activation.h"
#include "kernels/quantized_norm.h"
#include "kernels/reversible.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/row_norms.h"
#include "kernels/rows.h"
#include "kernels/sampling.h"
#include "kernels/softmax.h"
#include "kernels/target_loss.h"
#include "kernels/uniform_noise.h"
#include "kernels/valid_tokens.h"

namespace snug::kernels::cuda {

[[gnu::weak]] Error ActivationBackward(const ActivationBackwardParams& p, Stream stream);
[[gnu::weak]] Error ActivationForward(const ActivationForwardParams& p, Stream stream);
[[gnu::weak]] Error AdamW(const AdamWParams& p, Stream stream);
[[gnu::weak]] Error AddColumns(const ColumnsParams& p, Stream stream);
[[gnu::weak]] Error AddRows(const AddRowsParams& p, Stream stream);
[[gnu::weak]] Error AddUniformNoise(const UniformNoiseParams& p, Stream stream);
[[gnu::weak]] Error AffineBackward(const AffineBackwardParams& p, Stream stream);
[[gnu::weak]] Error AffineForward(const AffineForwardParams& p, Stream stream);
[[gnu::weak]] Error AttentionBackward(const AttentionBackwardParams& p, Stream stream);
[[gnu::weak]] Error AttentionForward(const AttentionForwardParams& p, Stream stream);
[[gnu::weak]] Error BiasBackward(const BiasBackwardParams& p, Stream stream);
[[gnu::weak]] Error BiasForward(const BiasForwardParams& p, Stream stream);
[[gnu::weak]] Error CastRows(const CastRowsParams& p, Stream stream);
[[gnu::weak]] Error ClipFactor(const ClipFactorParams& p, Stream stream);
[[gnu::weak]] Error CodeBackward(const CodeBackwardParams& p, Stream stream);
[[gnu::weak]] Error CrossEntropy(const CrossEntropyParams& p, Stream stream);
[[gnu::weak]] Error Dequantize(const DequantizeParams& p, Stream stream);
[[gnu::weak]] Error DequantizeInt8Weight(const DequantizeInt8WeightParams& p, Stream stream);
[[gnu::weak]] Error DequantizeNf4(const DequantizeNf4Params& p, Stream stream);
[[gnu::weak]] Error Dropout(const DropoutParams& p, Stream stream);
[[gnu::weak]] Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream);
[[gnu::weak]] Error EmbeddingForward(const EmbeddingForwardParams& p, Stream stream);
[[gnu::weak]] Error FixedAdd(const FixedAddParams& p, Stream stream);
[[gnu::weak]] Error FixedShiftAdd(const FixedShiftAddParams& p, Stream stream);
[[gnu::weak]] Error FoldNorm(const FoldNormParams& p, Stream stream);
[[gnu::weak]] Error FrozenLinearBackward(const FrozenLinearParams& p, Stream stream);
[[gnu::weak]] Error FrozenLinearForward(const FrozenLinearParams& p, Stream stream);
[[gnu::weak]] Error GatherColumns(const ColumnsParams& p, Stream stream);
[[gnu::weak]] Error GatherRows(const GatherRowsParams& p, Stream stream);
[[gnu::weak]] Error GatherScaledRows(const GatherScaledRowsParams& p, Stream stream);
[[gnu::weak]] Error GluBackward(const GluBackwardParams& p, Stream stream);
[[gnu::weak]] Error GluForward(const GluForwardParams& p, Stream stream);
[[gnu::weak]] Error MeanRowsBackward(const MeanRowsBackwardParams& p, Stream stream);
[[gnu::weak]] Error MeanRowsForward(const MeanRowsForwardParams& p, Stream stream);
[[gnu::weak]] Error MergeNorm(const MergeNormParams& p, Stream stream);
[[gnu::weak]] Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream);
[[gnu::weak]] Error NormalizeForward(const NormalizeForwardParams& p, Stream stream);
[[gnu::weak]] Error Quantize(const QuantizeParams& p, Stream stream);
[[gnu::weak]] Error QuantizeInt8Weight(const QuantizeInt8WeightParams& p, Stream stream);
[[gnu::weak]] Error QuantizeNf4(const QuantizeNf4Params& p, Stream stream);
[[gnu::weak]] Error QuantizedActivationBackward(const QuantizedActivationBackwardParams& p,
                                                Stream stream);
[[gnu::weak]] Error QuantizedActivationForward(const QuantizedActivationForwardParams& p,
                                               Stream stream);
[[gnu::weak]] Error QuantizedNormBackward(const QuantizedNormBackwardParams& p, Stream stream);
[[gnu::weak]] Error QuantizedNormForward(const QuantizedNormForwardParams& p, Stream stream);
[[gnu::weak]] Error QuantizedNormSums(const QuantizedNormSumsParams& p, Stream stream);
// Whether RmsNormBackward, below, can compute dx and dgamma of this: else the two ops that it is
// made of do.
[[gnu::weak]] bool FitsRmsNormBackward(const RmsNormBackwardParams& p);
[[gnu::weak]] Error RmsNormBackward(const RmsNormBackwardParams& p, Stream stream);
[[gnu::weak]] Error RopeBackward(const RopeParams& p, Stream stream);
[[gnu::weak]] Error RopeForward(const RopeParams& p, Stream stream);
[[gnu::weak]] Error RopeTable(const RopeTableParams& p, Stream stream);
[[gnu::weak]] Error RowNorms(const RowNormsParams& p, Stream stream);
[[gnu::weak]] Error SampleRows(const SampleRowsParams& p, Stream stream);
[[gnu::weak]] Error ScatterRows(const ScatterRowsParams& p, Stream stream);
[[gnu::weak]] Error SoftmaxBackward(const SoftmaxBackwardParams& p, Stream stream);
[[gnu::weak]] Error SoftmaxForward(const SoftmaxForwardParams& p, Stream stream);
[[gnu::weak]] Error SumSquares(const SumSquaresParams& p, Stream stream);
[[gnu::weak]] Error TargetLoss(const TargetLossParams& p, Stream stream);
[[gnu::weak]] Error UnmergeNorm(const MergeNormParams& p, Stream stream);
[[gnu::weak]] Error UpdateRanges(const UpdateRangesParams& p, Stream stream);
[[gnu::weak]] Error ValidTokens(const ValidTokensParams& p, Stream stream);

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ENTRIES_H_
