// The stages of an encoder whose attention has windows (Swin): each has half the side and twice the
// width of the one before. Layers are numbered through all stages, and what merges a stage's
// patches into those of the next is a layer behind its last.
#ifndef WORKER_PROGRAM_STAGES_H_
#define WORKER_PROGRAM_STAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/program/model_config.h"
#include "worker/program/patch_order.h"
#include "worker/program/rows.h"
#include "worker/program/tape_key.h"

namespace snug::program {

inline constexpr int64_t kMostStages = kMergedStages + 1;

// Where a layer is.
struct StagePlace {
  int64_t stage = 0;
  int64_t layer = 0;    // Of the stage.
  int64_t number = 0;   // Among those of all stages that do not merge.
  bool merges = false;  // Then it has no number.
};
StagePlace PlaceOf(const ModelConfig& config, int64_t layer);

// Of all stages, with those that merge.
int64_t LayersOf(const ModelConfig& config);

// Of a stage: patches of a side, elements per row.
int64_t SideOf(const ModelConfig& config, int64_t stage);
int64_t WidthOf(const ModelConfig& config, int64_t stage);
int64_t MlpWidthOf(const ModelConfig& config, int64_t stage);
Rows StageRows(int64_t stage);

// How a stage's patches lie between its layers; in a layer whose windows are shifted; and before
// they are merged.
PatchOrder OrderOf(const ModelConfig& config, int64_t stage);
PatchOrder ShiftedOrderOf(const ModelConfig& config, int64_t stage);
PatchOrder MergingOrderOf(const ModelConfig& config, int64_t stage);

// Of a layer that does not merge: by half a window, where it is an odd one of its stage and the
// stage has more windows than one.
bool IsShifted(const ModelConfig& config, const StagePlace& place);

// Of such a layer: the probability that an image passes its attention by (Huang et al. 2016), the
// more the later it is.
double DropPathOf(const ModelConfig& config, const StagePlace& place);

// Whether windows divide every stage, and merging every stage but the last: what is not so is
// padded by transformers, and computed by no program here.
bool StagesFit(const ModelConfig& config);

// Patches of each stage behind the first, of images that have so many together in that one.
std::array<int64_t, kMergedStages> MergedPatches(int64_t patches, size_t stages);

// With them, of a model that has stages.
TapeKey WithStages(TapeKey key, const ModelConfig& config);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_STAGES_H_
