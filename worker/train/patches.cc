#include "worker/train/patches.h"

#include <algorithm>
#include <bit>
#include <type_traits>

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

// Of one channel of one patch, whose first pixel is `pixels`.
template <typename T>
T* LayChannel(const PatchGrid& grid, const uint8_t* pixels, const float* values, T* to) {
  const int64_t line = grid.side * grid.patch_size * grid.channels;
  for (int64_t y = 0; y < grid.patch_size; ++y) {
    for (int64_t x = 0; x < grid.patch_size; ++x)
      *to++ = As<T>(values[pixels[y * line + x * grid.channels]]);
  }
  return to;
}

template <typename T>
void Lay(const Dataset& dataset, int64_t row, const PatchGrid& grid, T* to) {
  to = std::fill_n(to, grid.special * grid.row_width(), T{0});
  const int64_t size = grid.side * grid.patch_size;
  for (int64_t y = 0; y < size; y += grid.patch_size) {
    for (int64_t x = 0; x < size; x += grid.patch_size) {
      const uint8_t* pixels = dataset.pixels(row) + (y * size + x) * grid.channels;
      for (int64_t c = 0; c < grid.channels; ++c)
        to = LayChannel(grid, pixels + c, dataset.pixel_values(c), to);
    }
  }
}

}  // namespace

PatchGrid PatchGridOf(const program::ModelConfig& config, program::DType dtype) {
  return {.special = config.special_tokens(),
          .side = config.image_size / config.patch_size,
          .patch_size = config.patch_size,
          .channels = config.image_channels,
          .dtype = dtype};
}

void LayPatches(const Dataset& dataset, int64_t row, const PatchGrid& grid, char* to) {
  if (grid.dtype == program::DType::kF32)
    return Lay(dataset, row, grid, reinterpret_cast<float*>(to));
  Lay(dataset, row, grid, reinterpret_cast<uint16_t*>(to));
}

}  // namespace snug::train
