#include "worker/train/patches.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "worker/program/stages.h"

namespace snug::train {
namespace {

// Ties to even. What is read of pixels is finite.
uint16_t BFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
T As(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return BFloat16(value);
}

// value_of(channel, index): what is read there of the image's numbers.
template <typename T, typename ValueOf>
void Lay(const PatchGrid& grid, const ValueOf& value_of, T* to) {
  to = std::fill_n(to, grid.special * grid.row_width(), T{0});
  const int64_t size = grid.side * grid.patch_size, line = size * grid.channels;
  const auto patch = [&](int64_t first) {
    for (int64_t c = 0; c < grid.channels; ++c) {
      for (int64_t y = 0; y < grid.patch_size; ++y) {
        for (int64_t x = 0; x < grid.patch_size; ++x)
          *to++ = As<T>(value_of(c, first + y * line + x * grid.channels + c));
      }
    }
  };
  for (int64_t token = 0; token < grid.side * grid.side; ++token) {
    const int64_t place = grid.order.empty() ? token : grid.order[static_cast<size_t>(token)];
    const int64_t y = place / grid.side * grid.patch_size, x = place % grid.side * grid.patch_size;
    patch(y * line + x * grid.channels);
  }
}

template <typename ValueOf>
void LayAs(const PatchGrid& grid, const ValueOf& value_of, char* to) {
  if (grid.dtype == program::DType::kF32) return Lay(grid, value_of, reinterpret_cast<float*>(to));
  Lay(grid, value_of, reinterpret_cast<uint16_t*>(to));
}

}  // namespace

PatchGrid PatchGridOf(const program::ModelConfig& config, program::DType dtype) {
  PatchGrid grid = {.special = config.special_tokens(),
                    .side = config.image_size / config.patch_size,
                    .patch_size = config.patch_size,
                    .channels = config.image_channels,
                    .dtype = dtype};
  if (!config.stages.empty()) grid.order = program::PatchesOf(program::OrderOf(config, 0));
  return grid;
}

void LayPatches(const Dataset& dataset, int64_t row, const PatchGrid& grid, char* to) {
  const uint8_t* pixels = dataset.pixels(row);
  LayAs(
      grid, [&](int64_t c, int64_t i) { return dataset.pixel_values(c)[pixels[i]]; }, to);
}

void LayPatches(std::span<const float> image, const PatchGrid& grid, char* to) {
  LayAs(
      grid, [&](int64_t, int64_t i) { return image[static_cast<size_t>(i)]; }, to);
}

}  // namespace snug::train
