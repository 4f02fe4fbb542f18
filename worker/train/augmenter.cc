#include "worker/train/augmenter.h"

#include <algorithm>
#include <cstddef>

#include "worker/train/resample.h"

namespace snug::train {
namespace {

// Calls body(index) for each pixel of the part; an image's pixels count line by line.
template <typename Body>
void ForPixels(const Box& box, int64_t side, const Body& body) {
  for (int64_t y = box.top; y < box.top + box.height; ++y) {
    for (int64_t x = box.left; x < box.left + box.width; ++x) body(y * side + x);
  }
}

void Mirror(std::span<uint8_t> pixels, int64_t side, int64_t channels) {
  for (int64_t y = 0; y < side; ++y) {
    uint8_t* line = pixels.data() + y * side * channels;
    for (int64_t left = 0, right = side - 1; left < right; ++left, --right)
      std::swap_ranges(line + left * channels, line + (left + 1) * channels,
                       line + right * channels);
  }
}

}  // namespace

Augmenter::Augmenter(program::Augmentation augmentation, const program::ModelConfig& config,
                     uint64_t seed)
    : augmentation_(augmentation),
      seed_(seed),
      side_(config.image_size),
      channels_(config.image_channels) {
  const program::AugmentationRoom room = program::RoomOf(config, augmentation);
  between_.resize(static_cast<size_t>(room.between));
  pixels_.resize(static_cast<size_t>(room.pixels));
  image_.resize(static_cast<size_t>(room.pixels));
  other_.resize(static_cast<size_t>(room.pixels));
}

int64_t Augmenter::held_bytes() const {
  return static_cast<int64_t>(between_.capacity() + pixels_.capacity() +
                              (image_.capacity() + other_.capacity()) * sizeof(float));
}

void Augmenter::Make(const Dataset& dataset, int64_t row, const EpochDraws& draws,
                     std::span<float> image) {
  const Picture original = dataset.original(row);
  const ImageDraws drawn = draws.Of(row, original.height, original.width, side_);
  Picture crop = original;
  crop.pixels += drawn.crop.top * original.line + drawn.crop.left * channels_;
  crop.height = drawn.crop.height;
  crop.width = drawn.crop.width;
  Resample(crop, side_, between_.data(), pixels_.data());
  if (drawn.mirrored) Mirror(pixels_, side_, channels_);
  for (const ColourChange& change : drawn.changes) {
    if (draws.strong()) ChangeColour(change.colour, change.factor, channels_, pixels_);
  }
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = dataset.pixel_values(static_cast<int64_t>(i) % channels_)[pixels_[i]];
  ForPixels(drawn.erased, side_, [&](int64_t pixel) {
    for (int64_t i = pixel * channels_; i < (pixel + 1) * channels_; ++i)
      image[static_cast<size_t>(i)] = draws.Noise(row, i);
  });
}

// In float32, as torchvision's v2.MixUp.
void Augmenter::Mix(const Mixture& mixture) {
  if (!mixture.pasted.empty()) {
    return ForPixels(mixture.pasted, side_, [&](int64_t pixel) {
      std::copy_n(other_.data() + pixel * channels_, channels_, image_.data() + pixel * channels_);
    });
  }
  const auto own = static_cast<float>(mixture.share),
             rest = static_cast<float>(1.0 - mixture.share);
  for (size_t i = 0; i < image_.size(); ++i) image_[i] = other_[i] * rest + image_[i] * own;
}

std::span<const float> Augmenter::ImageOf(const Dataset& dataset, int64_t row, int64_t epoch) {
  const EpochDraws draws = Draws(epoch);
  Make(dataset, row, draws, image_);
  const Mixture mixture = draws.MixtureOf(row, dataset.rows().size(), side_);
  if (mixture.other < 0) return image_;
  Make(dataset, mixture.other, draws, other_);
  Mix(mixture);
  return image_;
}

MixedLabel Augmenter::LabelOf(const Dataset& dataset, int64_t row, int64_t epoch) const {
  const Mixture mixture = Draws(epoch).MixtureOf(row, dataset.rows().size(), side_);
  const int32_t own = dataset.label(row);
  if (mixture.other < 0) return {.first = own};
  const int32_t other = dataset.label(mixture.other);
  if (other == own) return {.first = own};
  if (mixture.share >= 0.5) return {own, other, static_cast<float>(mixture.share)};
  return {other, own, static_cast<float>(1.0 - mixture.share)};
}

}  // namespace snug::train
