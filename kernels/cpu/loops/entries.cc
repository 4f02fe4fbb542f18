// The table of one instruction set.
#include "kernels/cpu/loops/entries.h"

namespace snug::kernels::SNUG_ISA {

#define SNUG_STRING_OF(name) #name
#define SNUG_STRING(name) SNUG_STRING_OF(name)

#if defined(__AVX512BF16__)
constexpr bool kMultipliesPairs = true;
#else
constexpr bool kMultipliesPairs = false;
#endif

const Loops kLoops = {
    .name = SNUG_STRING(SNUG_ISA),
    .normalize_forward = NormalizeForwardRows,
    .normalize_backward = NormalizeBackwardRows,
    .affine_forward = AffineForwardRows,
    .rms_norm_forward = RmsNormForwardRows,
    .rms_norm_backward = RmsNormBackwardRows,
    .embedding_forward = EmbeddingForwardRows,
    .rope = RopeRows,
    .glu_forward = GluForwardRows,
    .glu_backward = GluBackwardRows,
    .cross_entropy = CrossEntropyRows,
    .dropout = DropoutRows,
    .cast_rows = CastRowsRange,
    .add_rows = AddRowsRange,
    .affine_backward = AffineBackwardColumns,
    .rms_norm_backward_gamma = RmsNormBackwardGammaColumns,
    .bias_backward = BiasBackwardColumns,
    .embedding_backward = EmbeddingBackwardColumns,
    .adamw = AdamWElements,
    .sum_squares = SumSquaresElements,
    .multiplies_pairs = kMultipliesPairs,
    .load = LoadTileForm,
    .store_rows = StoreTileRows,
    .multiply = MultiplyTile,
    .softmax = SoftmaxTileRows,
    .gradient = GradientTileRows,
    .row_dots = RowDotsRows,
};

}  // namespace snug::kernels::SNUG_ISA
