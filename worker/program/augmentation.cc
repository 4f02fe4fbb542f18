#include "worker/program/augmentation.h"

namespace snug::program {

const char* NameOf(Augmentation augmentation) {
  switch (augmentation) {
    case Augmentation::kNone:
      return "none";
    case Augmentation::kBasic:
      return "basic";
    case Augmentation::kStrong:
      break;
  }
  return "strong";
}

std::optional<Augmentation> AugmentationOfName(std::string_view name) {
  for (const Augmentation augmentation :
       {Augmentation::kNone, Augmentation::kBasic, Augmentation::kStrong}) {
    if (name == NameOf(augmentation)) return augmentation;
  }
  return std::nullopt;
}

AugmentationRoom RoomOf(const ModelConfig& config, Augmentation augmentation) {
  if (!config.of_images() || augmentation == Augmentation::kNone) return {};
  const int64_t side = config.image_size, line = side * config.image_channels;
  return {.between = kOriginalSides * side * line, .pixels = side * line};
}

}  // namespace snug::program
