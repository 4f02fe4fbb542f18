// What is drawn anew of each image in each epoch: a job's image_augmentation.
#ifndef WORKER_PROGRAM_AUGMENTATION_H_
#define WORKER_PROGRAM_AUGMENTATION_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "worker/program/model_config.h"

namespace snug::program {

enum class Augmentation : uint8_t {
  kNone,
  kBasic,   // A random resized crop, mirrored or not.
  kStrong,  // And colours, a part that is erased, and another image mixed in or pasted over.
};

// "none", "basic", "strong", as job files spell it, and back.
const char* NameOf(Augmentation augmentation);
std::optional<Augmentation> AugmentationOfName(std::string_view name);
// All of them, for messages.
inline constexpr char kAugmentationNames[] = "none, basic, strong";

// An image from which crops are taken has sides of at most so many of the model's.
inline constexpr int64_t kOriginalSides = 2;

// What a worker holds to augment an image at a time, in the host's memory: the crop on its way to
// the model's size, and two images as the model reads them.
struct AugmentationRoom {
  int64_t between = 0;  // Bytes of a crop one side of which is the model's.
  int64_t pixels = 0;   // Numbers of an image.
  int64_t bytes() const {
    return between + pixels + 2 * pixels * static_cast<int64_t>(sizeof(float));
  }
};
// All 0 where nothing is augmented.
AugmentationRoom RoomOf(const ModelConfig& config, Augmentation augmentation);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_AUGMENTATION_H_
