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
    .set = InstructionSet::SNUG_SET,
    .multiplies_pairs = kMultipliesPairs,
    .load = LoadTileForm,
    .store_rows = StoreTileRows,
    .multiply = MultiplyTile,
    .softmax = SoftmaxTileRows,
    .keep = KeepTileRows,
    .gradient = GradientTileRows,
    .row_dots = RowDotsRows,
};

}  // namespace snug::kernels::SNUG_ISA
