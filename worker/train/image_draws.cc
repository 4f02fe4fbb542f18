#include "worker/train/image_draws.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "kernels/philox.h"
#include "worker/weights/random_ops.h"

namespace snug::train {
namespace {

// What torchvision's transforms have as defaults.
constexpr int kTries = 10;  // Until a part has a place; then crops are central, nothing is erased.
constexpr double kLeastCrop = 0.08, kMostCrop = 1.0;            // Of the area,
constexpr double kFlattest = 3.0 / 4.0, kSteepest = 4.0 / 3.0;  // width by height.
constexpr double kMirrored = 0.5;
constexpr double kLeastErased = 0.02, kMostErased = 0.33;
constexpr double kFlattestErased = 0.3, kSteepestErased = 3.3;  // Height by width.
// What DeiT was trained with (Touvron et al. 2021, table 9; its colours are its code's default).
constexpr double kColour = 0.3;  // Factors are within this of 1.
constexpr double kErasedShare = 0.25;
constexpr double kMixupAlpha = 0.8, kCutmixAlpha = 1.0, kCutmixShare = 0.5;

constexpr int kPurposeBits = 32;  // Of a block's number, below the purpose.
// Of two of them some 0.6 are taken, so that of all these one is, but for 1 in 10^25 images.
constexpr int kBetaTries = 64;

}  // namespace

// Numbers one after another, for one purpose and row.
class EpochDraws::Stream {
 public:
  Stream(const EpochDraws& draws, int64_t row, Purpose purpose, int64_t first = 0)
      : site_{.seed = draws.seed_,
              .step = static_cast<uint32_t>(draws.epoch_),
              .micro_batch = static_cast<uint32_t>(row),
              .op = kImageOp},
        next_(uint64_t{static_cast<uint8_t>(purpose)} << kPurposeBits |
              static_cast<uint64_t>(first)) {}

  // In [0, 1), of 53 bits.
  double Uniform() {
    const kernels::Random4 random = kernels::RandomBlock(site_, next_++);
    const uint64_t word = uint64_t{random.word[0]} << 32 | random.word[1];
    return static_cast<double>(word >> 11) * 0x1p-53;
  }
  double Uniform(double from, double to) { return from + (to - from) * Uniform(); }
  // From 0, below `count`.
  int64_t Below(int64_t count) {
    return std::min(static_cast<int64_t>(Uniform() * static_cast<double>(count)), count - 1);
  }
  // Beta(alpha, alpha), alpha <= 1 (Johnk 1964).
  double Beta(double alpha) {
    for (int i = 0; i < kBetaTries; ++i) {
      const double x = std::pow(Uniform(), 1.0 / alpha), y = std::pow(Uniform(), 1.0 / alpha);
      if (x + y <= 1.0 && x + y > 0.0) return x / (x + y);
    }
    return 0.5;
  }

 private:
  const kernels::RandomSite site_;
  uint64_t next_;
};

// RandomResizedCrop.get_params.
Box EpochDraws::Crop(Stream draw, int64_t height, int64_t width) const {
  const auto area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * draw.Uniform(kLeastCrop, kMostCrop);
    const double ratio = std::exp(draw.Uniform(std::log(kFlattest), std::log(kSteepest)));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (w <= 0 || w > width || h <= 0 || h > height) continue;
    const int64_t top = draw.Below(height - h + 1);
    return {top, draw.Below(width - w + 1), h, w};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  Box box = {.height = height, .width = width};
  if (ratio < kFlattest)
    box.height = static_cast<int64_t>(std::nearbyint(static_cast<double>(width) / kFlattest));
  else if (ratio > kSteepest)
    box.width = static_cast<int64_t>(std::nearbyint(static_cast<double>(height) * kSteepest));
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

// ColorJitter.get_params.
std::array<ColourChange, 3> EpochDraws::Colours(Stream draw) const {
  std::array<ColourChange, 3> changes = {
      {{Colour::kBrightness}, {Colour::kContrast}, {Colour::kSaturation}}};
  for (ColourChange& change : changes)
    change.factor = static_cast<float>(draw.Uniform(1.0 - kColour, 1.0 + kColour));
  for (size_t i = changes.size(); i > 1; --i)
    std::swap(changes[i - 1], changes[static_cast<size_t>(draw.Below(static_cast<int64_t>(i)))]);
  return changes;
}

// RandomErasing.get_params, of a square.
Box EpochDraws::Erased(Stream draw, int64_t side) const {
  if (draw.Uniform() >= kErasedShare) return {};
  const auto area = static_cast<double>(side * side);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * draw.Uniform(kLeastErased, kMostErased);
    const double ratio =
        std::exp(draw.Uniform(std::log(kFlattestErased), std::log(kSteepestErased)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (h >= side || w >= side) continue;
    const int64_t top = draw.Below(side - h + 1);
    return {top, draw.Below(side - w + 1), h, w};
  }
  return {};
}

ImageDraws EpochDraws::Of(int64_t row, int64_t height, int64_t width, int64_t side) const {
  ImageDraws draws;
  draws.crop = Crop(Stream(*this, row, Purpose::kCrop), height, width);
  draws.mirrored = Stream(*this, row, Purpose::kMirror).Uniform() < kMirrored;
  if (!strong_) return draws;
  draws.changes = Colours(Stream(*this, row, Purpose::kColours));
  draws.erased = Erased(Stream(*this, row, Purpose::kErased), side);
  return draws;
}

// As torchvision's v2.CutMix places its box, which ends where the image does.
Mixture EpochDraws::MixtureOf(int64_t row, int64_t rows, int64_t side) const {
  if (!strong_ || rows < 2) return {};
  Stream draw(*this, row, Purpose::kMixture);
  Mixture mixture;
  mixture.other = draw.Below(rows - 1);
  if (mixture.other >= row) ++mixture.other;
  if (draw.Uniform() >= kCutmixShare) {
    mixture.share = draw.Beta(kMixupAlpha);
    return mixture;
  }
  const double share = draw.Beta(kCutmixAlpha);
  const int64_t x = draw.Below(side), y = draw.Below(side);
  const auto half = static_cast<int64_t>(0.5 * std::sqrt(1.0 - share) * static_cast<double>(side));
  const int64_t top = std::max<int64_t>(y - half, 0), left = std::max<int64_t>(x - half, 0);
  mixture.pasted = {top, left, std::min(y + half, side) - top, std::min(x + half, side) - left};
  // A box without pixels leaves the image alone.
  if (mixture.pasted.empty()) return {};
  mixture.share = 1.0 - static_cast<double>(mixture.pasted.height * mixture.pasted.width) /
                            static_cast<double>(side * side);
  return mixture;
}

// Box and Muller 1958.
float EpochDraws::Noise(int64_t row, int64_t index) const {
  Stream draw(*this, row, Purpose::kNoise, 2 * index);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - draw.Uniform()));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * draw.Uniform()));
}

}  // namespace snug::train
