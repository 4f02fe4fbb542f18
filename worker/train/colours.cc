#include "worker/train/colours.h"

#include <cstddef>

namespace snug::train {
namespace {

// ITU-R 601-2 in fixed point, as pillow converts RGB to L.
int Grey(const uint8_t* rgb) {
  return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

// Pillow's blend: towards zero, within a byte.
uint8_t Blend(int lost, int pixel, float factor) {
  const float value = static_cast<float>(lost) + factor * static_cast<float>(pixel - lost);
  if (value <= 0.0f) return 0;
  return value >= 255.0f ? uint8_t{255} : static_cast<uint8_t>(value);
}

// Of all pixels, rounded to the nearest.
int MeanGrey(int64_t channels, std::span<const uint8_t> pixels) {
  int64_t sum = 0;
  const auto count = static_cast<int64_t>(pixels.size()) / channels;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* pixel = pixels.data() + i * channels;
    sum += channels == 1 ? *pixel : Grey(pixel);
  }
  return static_cast<int>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
}

void BlendAll(int lost, float factor, std::span<uint8_t> pixels) {
  for (uint8_t& pixel : pixels) pixel = Blend(lost, pixel, factor);
}

}  // namespace

void ChangeColour(Colour colour, float factor, int64_t channels, std::span<uint8_t> pixels) {
  if (colour == Colour::kBrightness) return BlendAll(0, factor, pixels);
  if (colour == Colour::kContrast) return BlendAll(MeanGrey(channels, pixels), factor, pixels);
  if (channels == 1) return;
  for (size_t i = 0; i < pixels.size(); i += 3) {
    const int grey = Grey(&pixels[i]);
    for (size_t c = 0; c < 3; ++c) pixels[i + c] = Blend(grey, pixels[i + c], factor);
  }
}

}  // namespace snug::train
