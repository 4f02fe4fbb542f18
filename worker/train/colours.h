// A picture's colours, bit for bit as torchvision changes those of PIL images: each is a blend, by
// `factor`, of the picture (1) and one that has lost something (0); above 1 it goes beyond.
#ifndef WORKER_TRAIN_COLOURS_H_
#define WORKER_TRAIN_COLOURS_H_

#include <cstdint>
#include <span>

namespace snug::train {

enum class Colour : uint8_t {
  kBrightness,  // Against black,
  kContrast,    // the mean of its greys,
  kSaturation,  // its greys.
};

// `channels`: 1 (greys, which have no saturation) or 3.
void ChangeColour(Colour colour, float factor, int64_t channels, std::span<uint8_t> pixels);

}  // namespace snug::train

#endif  // WORKER_TRAIN_COLOURS_H_
