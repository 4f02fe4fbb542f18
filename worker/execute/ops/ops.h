// The functions of the table in op_functions.cc; one file each. Contracts: at the top of those
// files.
#ifndef WORKER_EXECUTE_OPS_OPS_H_
#define WORKER_EXECUTE_OPS_OPS_H_

#include "worker/execute/op_run.h"

namespace snug::execute {

void EmbeddingForward(const OpRun& run);
void EmbeddingBackward(const OpRun& run);
void PatchEmbeddingForward(const OpRun& run);
void PatchEmbeddingBackward(const OpRun& run);
void NormalizeForward(const OpRun& run);
void NormalizeBackward(const OpRun& run);
void AffineForward(const OpRun& run);
void AffineBackward(const OpRun& run);
void RmsNormForward(const OpRun& run);
void RmsNormBackward(const OpRun& run);
void LinearForward(const OpRun& run);
void LinearBackward(const OpRun& run);
void LoraDownForward(const OpRun& run);
void LoraDownBackward(const OpRun& run);
void LoraLinearForward(const OpRun& run);
void LoraLinearBackward(const OpRun& run);
void LoraEmbeddingForward(const OpRun& run);
void LoraEmbeddingBackward(const OpRun& run);
void RopeForward(const OpRun& run);
void RopeBackward(const OpRun& run);
void AttentionForward(const OpRun& run);
void AttentionBackward(const OpRun& run);
void GluForward(const OpRun& run);
void GluBackward(const OpRun& run);
void ActivationForward(const OpRun& run);
void ActivationBackward(const OpRun& run);
void DropoutForward(const OpRun& run);
void DropoutBackward(const OpRun& run);
void AddForward(const OpRun& run);
void SelectRowsForward(const OpRun& run);
void SelectRowsBackward(const OpRun& run);
void MergeRowsForward(const OpRun& run);
void MergeRowsBackward(const OpRun& run);
void ReorderRowsForward(const OpRun& run);
void ReorderRowsBackward(const OpRun& run);
void MeanRowsForward(const OpRun& run);
void MeanRowsBackward(const OpRun& run);
void ToFixedForward(const OpRun& run);
void FromFixedForward(const OpRun& run);
void FixedAddForward(const OpRun& run);
void FixedSubtractForward(const OpRun& run);
void QuantizeForward(const OpRun& run);
void DequantizeForward(const OpRun& run);
void SampleRowsForward(const OpRun& run);
void HeadLossForward(const OpRun& run);   // The loss alone.
void HeadLossBackward(const OpRun& run);  // The loss and its gradients.

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_OPS_H_
