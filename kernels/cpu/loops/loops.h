// The inner loops of the CPU kernels: one table of functions per instruction set. An op's own file
// (kernels/cpu/<op>.cc) checks its arguments and divides the work among threads; the loops take
// checked arguments and a range of rows (or columns, or elements) and know nothing of threads.
#ifndef KERNELS_CPU_LOOPS_LOOPS_H_
#define KERNELS_CPU_LOOPS_LOOPS_H_

#include <cstdint>

#include "kernels/adamw.h"
#include "kernels/bias.h"
#include "kernels/cpu/loops/tiles.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/grad_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/rows.h"

namespace snug::kernels {

// Half open.
struct Range {
  int64_t begin = 0, end = 0;
};

// Scalars of one AdamW update, as fp32.
struct AdamWScalars {
  float grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, minus_step_size,
      sqrt_correction2, eps;
};

struct Loops {
  const char* name;
  // Ranges of rows.
  void (*normalize_forward)(const NormalizeForwardParams&, Range);
  void (*normalize_backward)(const NormalizeBackwardParams&, Range);
  void (*affine_forward)(const AffineForwardParams&, Range);
  void (*rms_norm_forward)(const RmsNormForwardParams&, Range);
  void (*rms_norm_backward)(const RmsNormBackwardParams&, Range);  // dx
  void (*embedding_forward)(const EmbeddingForwardParams&, Range);
  void (*rope)(const RopeParams&, bool backward, Range);
  void (*glu_forward)(const GluForwardParams&, Range);
  void (*glu_backward)(const GluBackwardParams&, Range);
  void (*cross_entropy)(const CrossEntropyParams&, Range);
  void (*dropout)(const DropoutParams&, Range);
  void (*cast_rows)(const CastRowsParams&, Range);
  void (*add_rows)(const AddRowsParams&, Range);
  // Ranges of columns.
  void (*affine_backward)(const AffineBackwardParams&, Range);
  void (*rms_norm_backward_gamma)(const RmsNormBackwardParams&, Range);
  void (*bias_backward)(const BiasBackwardParams&, Range);
  void (*embedding_backward)(const EmbeddingBackwardParams&, Range);
  // Ranges of elements.
  void (*adamw)(const AdamWTensor&, const AdamWScalars&, Range);
  double (*sum_squares)(const NormTensor&, Range);
  // Tiles.
  bool multiplies_pairs;  // Whether tiles may be of pairs of bf16.
  void (*load)(const LoadTile&);
  void (*store_rows)(const StoreTile&);
  void (*multiply)(const TileProduct&);
  void (*softmax)(const SoftmaxTile&);
  void (*gradient)(const GradientTile&);
  void (*row_dots)(const RowDots&);
};

enum class InstructionSet : uint8_t { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

// The table of an instruction set; null where this build or this machine does not have it.
const Loops* LoopsOf(InstructionSet isa);

// The best table that this machine can run; chosen once.
const Loops& BestLoops();

// Makes BestLoops() give this table, to compare instruction sets in tests. Not while an op runs.
void UseLoops(const Loops& loops);

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_LOOPS_H_
