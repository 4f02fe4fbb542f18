#include "worker/execute/op_run.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {

const OpFunctionTable& OpFunctionsOfKernels() {
  // In the order of program::OpCode.
  static constexpr OpFunctionTable kFunctions = {{
      {EmbeddingForward, EmbeddingBackward},
      {PatchEmbeddingForward, PatchEmbeddingBackward},
      {NormalizeForward, NormalizeBackward},
      {AffineForward, AffineBackward},
      {RmsNormForward, RmsNormBackward},
      {LinearForward, LinearBackward},
      {LoraDownForward, LoraDownBackward},
      {LoraLinearForward, LoraLinearBackward},
      {LoraEmbeddingForward, LoraEmbeddingBackward},
      {RopeForward, RopeBackward},
      {AttentionForward, AttentionBackward},
      {GluForward, GluBackward},
      {ActivationForward, ActivationBackward},
      {DropoutForward, DropoutBackward},
      {AddForward, AddForward},
      {HeadLossForward, HeadLossBackward},
      {SelectRowsForward, SelectRowsBackward},
      {MergeRowsForward, MergeRowsBackward},
      {ReorderRowsForward, ReorderRowsBackward},
      {MeanRowsForward, MeanRowsBackward},
      {ToFixedForward, nullptr},
      {FromFixedForward, nullptr},
      {FixedAddForward, nullptr},
      {QuantizeForward, nullptr},
      {DequantizeForward, nullptr},
      {SampleRowsForward, nullptr},
      {FixedSubtractForward, nullptr},
  }};
  return kFunctions;
}

}  // namespace snug::execute
