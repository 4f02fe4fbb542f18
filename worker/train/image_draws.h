// What is drawn of an image in an epoch, as torchvision's transforms draw it: a pure function of
// the job's seed, the epoch and the row, so that a resumed run and any division into batches have
// the same images. Knows no pixels.
#ifndef WORKER_TRAIN_IMAGE_DRAWS_H_
#define WORKER_TRAIN_IMAGE_DRAWS_H_

#include <array>
#include <cstdint>

#include "worker/program/augmentation.h"
#include "worker/train/colours.h"

namespace snug::train {

// A part of an image, in pixels.
struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
  bool empty() const { return height == 0 || width == 0; }
};

struct ColourChange {
  Colour colour = Colour::kBrightness;
  float factor = 1.0f;
};

struct ImageDraws {
  Box crop;                                  // Of the original,
  bool mirrored = false;                     // which is mirrored at the model's size,
  std::array<ColourChange, 3> changes = {};  // changed in this order where colours are,
  Box erased;                                // and overwritten with noise here; or empty.
};

// Which image is seen together with another one, and how much of its own.
struct Mixture {
  int64_t other = -1;  // The other's row; negative: it is seen alone.
  double share = 1.0;  // Of the image itself, and of its label.
  Box pasted;          // Where the other lies over it; empty: each pixel is the mean by shares.
};

class EpochDraws {
 public:
  EpochDraws(program::Augmentation augmentation, uint64_t seed, int64_t epoch)
      : strong_(augmentation == program::Augmentation::kStrong), seed_(seed), epoch_(epoch) {}

  bool strong() const { return strong_; }
  // Of an image of this size, for a model that reads squares of `side` pixels.
  ImageDraws Of(int64_t row, int64_t height, int64_t width, int64_t side) const;
  // `rows`: of the dataset.
  Mixture MixtureOf(int64_t row, int64_t rows, int64_t side) const;
  // Number `index` of the noise that a part is erased with: normal, of mean 0 and variance 1.
  float Noise(int64_t row, int64_t index) const;

 private:
  class Stream;
  enum class Purpose : uint8_t { kCrop, kMirror, kColours, kErased, kNoise, kMixture };
  Box Crop(Stream draw, int64_t height, int64_t width) const;
  std::array<ColourChange, 3> Colours(Stream draw) const;
  Box Erased(Stream draw, int64_t side) const;

  bool strong_;
  uint64_t seed_;
  int64_t epoch_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_IMAGE_DRAWS_H_
