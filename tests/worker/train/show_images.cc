// show_images DATA AUGMENTATION SEED EPOCHS IMAGES: of each image of a prepared dataset and each
// epoch a line of JSON with what is drawn of it, and in the file IMAGES its numbers as the model
// reads them, fp32 [epochs, rows, side, side, channels]. A tool of augmentation_test.py.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/train/augmenter.h"
#include "worker/train/dataset.h"

namespace snug::train {
namespace {

nlohmann::json JsonOf(const Box& box) { return {box.top, box.left, box.height, box.width}; }

nlohmann::json JsonOf(const ImageDraws& draws) {
  nlohmann::json changes = nlohmann::json::array();
  for (const ColourChange& change : draws.changes)
    changes.push_back({static_cast<int>(change.colour), change.factor});
  return {{"crop", JsonOf(draws.crop)},
          {"mirrored", draws.mirrored},
          {"changes", changes},
          {"erased", JsonOf(draws.erased)}};
}

nlohmann::json JsonOf(const Mixture& mixture) {
  return {{"other", mixture.other}, {"share", mixture.share}, {"pasted", JsonOf(mixture.pasted)}};
}

nlohmann::json LineOf(const Dataset& dataset, const Augmenter& augmenter, const EpochDraws& draws,
                      int64_t row, int64_t epoch) {
  const Picture original = dataset.original(row);
  nlohmann::json line =
      JsonOf(draws.Of(row, original.height, original.width, dataset.image_size()));
  line["mixture"] = JsonOf(draws.MixtureOf(row, dataset.rows().size(), dataset.image_size()));
  const MixedLabel label = augmenter.LabelOf(dataset, row, epoch);
  line["label"] = {label.first, label.second, label.share};
  return line;
}

int Main(char** argv) {
  const auto dataset = Dataset::Open(argv[1], /*vocabulary=*/1);
  const auto augmentation = program::AugmentationOfName(argv[2]);
  if (!dataset.ok() || !augmentation) {
    std::cerr << dataset.status() << "\n";
    return 1;
  }
  const uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  program::ModelConfig config;
  config.image_size = dataset->image_size();
  config.image_channels = dataset->image_channels();
  config.patch_size = 1;
  Augmenter augmenter(*augmentation, config, seed);
  std::ofstream images(argv[5], std::ios::binary);
  for (int64_t epoch = 0; epoch < std::atoll(argv[4]); ++epoch) {
    const EpochDraws draws(*augmentation, seed, epoch);
    for (int64_t row = 0; row < dataset->rows().size(); ++row) {
      std::cout << LineOf(*dataset, augmenter, draws, row, epoch) << "\n";
      const auto image = augmenter.ImageOf(*dataset, row, epoch);
      images.write(reinterpret_cast<const char*>(image.data()),
                   static_cast<std::streamsize>(image.size_bytes()));
    }
  }
  return images.good() ? 0 : 1;
}

}  // namespace
}  // namespace snug::train

int main(int argc, char** argv) { return argc == 6 ? snug::train::Main(argv) : 64; }
