// Images as they are trained in an epoch: drawn anew of their originals (image_draws.h), as the
// model reads them. Holds program::RoomOf and nothing beside it.
#ifndef WORKER_TRAIN_AUGMENTER_H_
#define WORKER_TRAIN_AUGMENTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/program/augmentation.h"
#include "worker/program/model_config.h"
#include "worker/train/dataset.h"
#include "worker/train/image_draws.h"

namespace snug::train {

// Of an image that is seen together with another one: the class that has the larger share, the
// other's (negative: there is none), and the first one's share.
struct MixedLabel {
  int32_t first = 0, second = -1;
  float share = 1.0f;
};

class Augmenter {
 public:
  Augmenter(program::Augmentation augmentation, const program::ModelConfig& config, uint64_t seed);

  bool augments() const { return augmentation_ != program::Augmentation::kNone; }
  // Whether an image can have two labels.
  bool mixes() const { return augmentation_ == program::Augmentation::kStrong; }

  // [side, side, channels], valid until the next call. `dataset`: of the model's images, with their
  // originals.
  std::span<const float> ImageOf(const Dataset& dataset, int64_t row, int64_t epoch);
  MixedLabel LabelOf(const Dataset& dataset, int64_t row, int64_t epoch) const;

  int64_t held_bytes() const;

 private:
  EpochDraws Draws(int64_t epoch) const { return {augmentation_, seed_, epoch}; }
  // The image alone.
  void Make(const Dataset& dataset, int64_t row, const EpochDraws& draws, std::span<float> image);
  void Mix(const Mixture& mixture);  // The other image into the first.

  program::Augmentation augmentation_;
  uint64_t seed_;
  int64_t side_, channels_;
  std::vector<uint8_t> between_, pixels_;
  std::vector<float> image_, other_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_AUGMENTER_H_
