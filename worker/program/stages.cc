#include "worker/program/stages.h"

#include <algorithm>

namespace snug::program {
namespace {

int64_t StagesOf(const ModelConfig& config) { return static_cast<int64_t>(config.stages.size()); }

}  // namespace

StagePlace PlaceOf(const ModelConfig& config, int64_t layer) {
  StagePlace place{.layer = layer};
  for (const StageSizes& stage : config.stages) {
    if (place.layer <= stage.layers) {
      place.merges = place.layer == stage.layers;
      place.number += place.layer;
      return place;
    }
    place.layer -= stage.layers + 1;
    place.number += stage.layers;
    ++place.stage;
  }
  return place;
}

int64_t LayersOf(const ModelConfig& config) {
  int64_t layers = StagesOf(config) - 1;
  for (const StageSizes& stage : config.stages) layers += stage.layers;
  return layers;
}

int64_t SideOf(const ModelConfig& config, int64_t stage) {
  return config.image_size / config.patch_size >> stage;
}

int64_t WidthOf(const ModelConfig& config, int64_t stage) {
  return config.width >> (StagesOf(config) - 1 - stage);
}

int64_t MlpWidthOf(const ModelConfig& config, int64_t stage) {
  return config.mlp_width >> (StagesOf(config) - 1 - stage);
}

Rows StageRows(int64_t stage) {
  constexpr Rows kRows[kMostStages] = {Rows::kTokens, Rows::kMerged1, Rows::kMerged2,
                                       Rows::kMerged3};
  return kRows[stage];
}

PatchOrder OrderOf(const ModelConfig& config, int64_t stage) {
  return {.side = SideOf(config, stage), .window = config.window_side};
}

PatchOrder ShiftedOrderOf(const ModelConfig& config, int64_t stage) {
  return {
      .side = SideOf(config, stage), .window = config.window_side, .shift = config.window_side / 2};
}

PatchOrder MergingOrderOf(const ModelConfig& config, int64_t stage) {
  return {.side = SideOf(config, stage), .window = config.window_side, .in_fours = true};
}

bool IsShifted(const ModelConfig& config, const StagePlace& place) {
  return place.layer % 2 == 1 && config.window_side > 1 &&
         SideOf(config, place.stage) > config.window_side;
}

double DropPathOf(const ModelConfig& config, const StagePlace& place) {
  const int64_t layers = LayersOf(config) - (StagesOf(config) - 1);
  return config.drop_path * static_cast<double>(place.number) /
         static_cast<double>(std::max<int64_t>(1, layers - 1));
}

bool StagesFit(const ModelConfig& config) {
  if (config.patch_size < 1 || config.image_size % config.patch_size != 0) return false;
  for (int64_t stage = 0; stage < StagesOf(config); ++stage) {
    const int64_t side = SideOf(config, stage);
    const bool last = stage + 1 == StagesOf(config);
    if (side < 1 || config.window_side < 1 || side % config.window_side != 0) return false;
    if (!last && side % 2 != 0) return false;
  }
  return true;
}

std::array<int64_t, kMergedStages> MergedPatches(int64_t patches, size_t stages) {
  std::array<int64_t, kMergedStages> merged = {};
  for (size_t i = 1; i < stages; ++i) merged[i - 1] = patches >> (2 * i);
  return merged;
}

TapeKey WithStages(TapeKey key, const ModelConfig& config) {
  if (!config.stages.empty()) key.merged = MergedPatches(key.tokens, config.stages.size());
  return key;
}

}  // namespace snug::program
