// An image's pixels as the rows of its tokens: a patch is one row of channels * size * size
// numbers, in the order in which a convolution's weight has them.
#ifndef WORKER_TRAIN_PATCHES_H_
#define WORKER_TRAIN_PATCHES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/program/model_config.h"
#include "worker/train/dataset.h"

namespace snug::train {

struct PatchGrid {
  int64_t special = 0;  // Tokens in front that stand for no patch.
  int64_t side = 0;     // Patches in a row of the image.
  int64_t patch_size = 0, channels = 0;
  // By token behind those in front, its patch; empty: as they lie.
  std::vector<int32_t> order = {};
  program::DType dtype = program::DType::kF32;

  int64_t row_width() const { return channels * patch_size * patch_size; }
  int64_t row_bytes() const { return row_width() * program::SizeOf(dtype); }
};

PatchGrid PatchGridOf(const program::ModelConfig& config, program::DType dtype);

// Writes the image of a row of the dataset, which has the grid's size, token by token: numbers as
// the model reads them, rounded to the nearest of the type; zeros where there is no patch.
void LayPatches(const Dataset& dataset, int64_t row, const PatchGrid& grid, char* to);
// The same of an image that is there as numbers, [height, width, channels].
void LayPatches(std::span<const float> image, const PatchGrid& grid, char* to);

}  // namespace snug::train

#endif  // WORKER_TRAIN_PATCHES_H_
